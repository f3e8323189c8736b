/* Allocates until malloc fails, then continues with its memory. */
#include "check.h"

int main(void)
{
	char *blocks[4096];
	int n = 0;
	while (n < 4096 && (blocks[n] = malloc(1 << 20)))
		memset(blocks[n++], n, 1 << 20);
	int error = errno;
	for (int i = 0; i < n; i++)
		CHECK_EQ(blocks[i][12345], (char)(i + 1));
	for (int i = 0; i < n; i++)
		free(blocks[i]);
	printf("%s\n", n < 4096 && error == ENOMEM ? "refused" : "not refused");
	CHECK(malloc(1 << 20));
	return 0;
}

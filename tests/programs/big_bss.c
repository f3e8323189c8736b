/* A program whose data alone are 200 MB. */
#include <stdio.h>

static volatile char data[200 << 20];

int main(void)
{
	data[sizeof data - 1] = 'x';
	printf("%c\n", data[sizeof data - 1]);
	return 0;
}

/* A program whose text takes a while to load. */
#include <stdio.h>

__asm__(".section .text\n.fill 128 * 1024 * 1024, 1, 0x90\n");

int main(void)
{
	puts("ran");
	return 0;
}

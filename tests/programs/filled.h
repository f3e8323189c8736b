/* Buffers whose bytes follow from a number, the salt, and are checked where they arrive. */
#ifndef FILLED_H
#define FILLED_H

#include "check.h"

/* The value at `i`: differs between neighbours and salts. */
static unsigned char byte_at(int salt, size_t i)
{
	return (unsigned char)(((unsigned)i * 2654435761u + (unsigned)salt * 40503u) >> 13);
}

__attribute__((unused)) static unsigned char *filled(size_t bytes, int salt)
{
	unsigned char *at = malloc(bytes + 1);
	for (size_t i = 0; i < bytes; i++)
		at[i] = byte_at(salt, i);
	return at;
}

__attribute__((unused)) static void check_filled(const unsigned char *at, size_t bytes, int salt)
{
	for (size_t i = 0; i < bytes; i++)
		CHECK_EQ(at[i], byte_at(salt, i));
}

#endif

/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Strings of Fortran and of C. Fortran's are padded with blanks and end with nothing: their
 * lengths come by value behind all other arguments, as int or, of newer compilers, size_t.
 * Here they are int, which is the lower half of the other, and positive.
 */
#ifndef FPVM3_TEXT_H
#define FPVM3_TEXT_H

#include <string.h>

/* Longest names, in characters, as PVM 3.4.6 has them. */
enum { NAME_MAX_LEN = 256, GROUP_MAX_LEN = 31 };

/* Copies `text` without its padding; 0 if it is longer than `longest`. */
static inline int text_to_c(char *c, int longest, const char *text, int text_len)
{
	while (text_len > 0 && text[text_len - 1] == ' ')
		text_len--;
	if (text_len > longest)
		return 0;
	memcpy(c, text, text_len);
	c[text_len] = 0;
	return 1;
}

/* Copies `c`, cut or padded to the length of `text`. */
static inline void text_from_c(char *text, int text_len, const char *c)
{
	size_t len = strnlen(c, text_len);

	memcpy(text, c, len);
	memset(text + len, ' ', text_len - len);
}

/* Declares `name`, the C string of the argument NAME_text; leaves with PvmBadParam if it is
 * too long. */
#define C_STRING(name, longest) \
	char name[(longest) + 1]; \
	if (!text_to_c(name, longest, name##_text, name##_len)) { \
		*info = PvmBadParam; \
		return; \
	}

#endif

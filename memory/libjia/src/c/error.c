// SPDX-License-Identifier: Apache-2.0 OR MIT
// jia_error, which has a variable number of arguments, as Rust cannot define it.

#include <stdarg.h>
#include <stdio.h>

_Noreturn void nagaya_jia_end(const char *line);

_Noreturn void nagaya_jia_error(const char *format, ...)
{
	char line[1024];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(line, sizeof line, format, arguments);
	va_end(arguments);
	nagaya_jia_end(line);
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
// Functions with a variable number of arguments, which Rust cannot define (variadic.rs).

#include <stdarg.h>

struct list {
	va_list at;
};

int nagaya_pvm_pack_list(const char *format, struct list *list);
int nagaya_pvm_unpack_list(const char *format, struct list *list);

int nagaya_pvm_next_int(struct list *list) { return va_arg(list->at, int); }
long nagaya_pvm_next_long(struct list *list) { return va_arg(list->at, long); }
double nagaya_pvm_next_double(struct list *list) { return va_arg(list->at, double); }
void *nagaya_pvm_next_pointer(struct list *list) { return va_arg(list->at, void *); }

int nagaya_pvm_vpackf(const char *format, va_list at)
{
	struct list list;
	va_copy(list.at, at);
	int result = nagaya_pvm_pack_list(format, &list);
	va_end(list.at);
	return result;
}

int nagaya_pvm_vunpackf(const char *format, va_list at)
{
	struct list list;
	va_copy(list.at, at);
	int result = nagaya_pvm_unpack_list(format, &list);
	va_end(list.at);
	return result;
}

int nagaya_pvm_packf(const char *format, ...)
{
	struct list list;
	va_start(list.at, format);
	int result = nagaya_pvm_pack_list(format, &list);
	va_end(list.at);
	return result;
}

int nagaya_pvm_unpackf(const char *format, ...)
{
	struct list list;
	va_start(list.at, format);
	int result = nagaya_pvm_unpack_list(format, &list);
	va_end(list.at);
	return result;
}

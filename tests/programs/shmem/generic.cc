// The same through the overloads of C++.
#include "generic.c"

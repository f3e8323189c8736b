/* The library that the program `origin` finds next to itself. */
int origin_library(void)
{
	return 4711;
}

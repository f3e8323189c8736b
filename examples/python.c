/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * python.c - the Python interpreter as a position-independent executable.
 *
 * Only such programs can be tasks, and /usr/bin/python3 of Debian and Ubuntu is none.
 * This is the same interpreter, out of the shared library libpython3.
 */
#include <Python.h>

int main(int argc, char **argv)
{
	return Py_BytesMain(argc, argv);
}

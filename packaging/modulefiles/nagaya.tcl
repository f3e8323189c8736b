#%Module1.0
# Environment Modules, and Lmod: `module load nagaya/VERSION`. The file finds the installation
# relative to itself, as PREFIX/share/nagaya/modulefiles/nagaya/VERSION;
# `module use PREFIX/share/nagaya/modulefiles`. Set `prefix` if you copy it to another place.
set prefix [file normalize [file join [file dirname $ModulesCurrentModulefile] ../../../..]]

proc ModulesHelp { } {
	puts stderr "Nagaya: one virtual address space for parallel programs."
	puts stderr ""
	puts stderr "    mpirun -n 64 nagaya exec ./app"
	puts stderr ""
	puts stderr "runs the ranks of an MPI job in one address space. See nagaya(1)."
}
module-whatis "Nagaya: one virtual address space for parallel programs"

conflict nagaya
prepend-path PATH $prefix/bin
prepend-path MANPATH $prefix/share/man
# An empty element stands for the system's pages.
append-path MANPATH {}
prepend-path LD_LIBRARY_PATH $prefix/lib
prepend-path LIBRARY_PATH $prefix/lib
prepend-path CPATH $prefix/include
prepend-path PKG_CONFIG_PATH $prefix/lib/pkgconfig
prepend-path CMAKE_PREFIX_PATH $prefix
if { [file isdirectory $prefix/python] } {
	prepend-path PYTHONPATH $prefix/python
}

-- -*- lua -*-
-- Lmod: `module load nagaya/VERSION`. The file finds the installation relative to itself, as
-- PREFIX/share/nagaya/modulefiles/nagaya/VERSION.lua; `module use PREFIX/share/nagaya/modulefiles`.
-- Set `prefix` if you copy the file to another place.
local prefix = myFileName():match("^(.*)/share/nagaya/modulefiles/")

help([[Nagaya: one virtual address space for parallel programs.

    mpirun -n 64 nagaya exec ./app

runs the ranks of an MPI job in one address space. See nagaya(1).]])
whatis("Name: Nagaya")
whatis("Description: one virtual address space for parallel programs")
whatis("Category: runtime")

conflict("nagaya")
prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("MANPATH", pathJoin(prefix, "share/man"))
-- An empty element stands for the system's pages.
append_path("MANPATH", "")
prepend_path("LD_LIBRARY_PATH", pathJoin(prefix, "lib"))
prepend_path("LIBRARY_PATH", pathJoin(prefix, "lib"))
prepend_path("CPATH", pathJoin(prefix, "include"))
prepend_path("PKG_CONFIG_PATH", pathJoin(prefix, "lib/pkgconfig"))
prepend_path("CMAKE_PREFIX_PATH", prefix)
if isDir(pathJoin(prefix, "python")) then
	prepend_path("PYTHONPATH", pathJoin(prefix, "python"))
end

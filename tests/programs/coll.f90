! The collective operations as a program in Fortran calls them.
program collective
  use mpi
  implicit none
  integer :: rank, ranks, error, i
  integer, allocatable :: give(:), take(:), all(:)
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  allocate (give(30000), take(30000), all(30000 * ranks))
  do i = 1, 30000
     give(i) = rank + i
  end do
  call MPI_Barrier(MPI_COMM_WORLD, error)
  call MPI_Allreduce(give, take, 30000, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
  if (any(take /= [(ranks * i + ranks * (ranks - 1) / 2, i = 1, 30000)])) call wrong('allreduce')
  take = give
  call MPI_Allreduce(MPI_IN_PLACE, take, 30000, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, error)
  if (any(take /= [(ranks - 1 + i, i = 1, 30000)])) call wrong('in place')
  call MPI_Allgather(give, 30000, MPI_INTEGER, all, 30000, MPI_INTEGER, MPI_COMM_WORLD, error)
  if (all(30000 * ranks) /= ranks - 1 + 30000) call wrong('allgather')
  call MPI_Bcast(give, 30000, MPI_INTEGER, ranks - 1, MPI_COMM_WORLD, error)
  if (give(1) /= ranks) call wrong('bcast')
  if (rank == 0) print '(a)', 'Fortran agrees'
  call MPI_Finalize(error)
contains
  subroutine wrong(what)
    character(*), intent(in) :: what
    print '(2a)', what, ' is not so'
    call MPI_Abort(MPI_COMM_WORLD, 9, error)
  end subroutine
end program

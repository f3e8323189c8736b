! A Fortran program of the old kind: COMMON blocks, BLOCK DATA, EQUIVALENCE, formatted and
! unformatted input and output, array arithmetic, allocation.
block data init
  common /params/ tolerance, n
  integer :: n
  double precision :: tolerance
  data tolerance, n / 1d-9, 120 /
end block data

program common_blocks
  implicit none
  common /params/ tolerance, n
  common /grid/ u, v
  common work
  integer :: n
  double precision :: tolerance, u(0:121, 0:121), v(0:121, 0:121), work(100000)
  integer :: i, bits(2), unit
  double precision :: x
  equivalence (x, bits)
  double precision, allocatable :: a(:, :), b(:, :)
  character(len=40) :: line

  if (n /= 120) stop 3
  u = 0
  u(0, :) = 1
  do i = 1, 500
    call sweep
  end do
  work = [(dble(i), i = 1, 100000)]
  call total(x)
  if (abs(x - 5000050000d0) > tolerance) stop 4
  x = 1
  if (bits(2) /= 1072693248) stop 5

  allocate (a(300, 300), b(300, 300))
  call random_number(a)
  b = transpose(a)
  if (maxval(abs(matmul(a, b) - transpose(matmul(a, b)))) > tolerance) stop 6
  deallocate (a)

  open (newunit=unit, status='scratch', form='unformatted')
  write (unit) b
  allocate (a(300, 300))
  rewind unit
  read (unit) a
  if (any(a /= b)) stop 7
  close (unit)
  write (line, '(i6, f12.6, 1x, a)') 42, 1d0 / 3, 'formatted'
  print '(a)', trim(line)
  print '(f10.7)', u(1, 60)
end program

subroutine sweep
  implicit none
  common /params/ tolerance, n
  common /grid/ u, v
  integer :: n, i, j
  double precision :: tolerance, u(0:121, 0:121), v(0:121, 0:121)
  !$omp parallel do
  do j = 1, n
    do i = 1, n
      v(i, j) = 0.25d0 * (u(i - 1, j) + u(i + 1, j) + u(i, j - 1) + u(i, j + 1))
    end do
  end do
  u(1:n, 1:n) = v(1:n, 1:n)
end subroutine

subroutine total(x)
  implicit none
  common work
  double precision :: work(100000), x
  x = sum(work)
end subroutine

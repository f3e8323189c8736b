! JIAJIA for Fortran: numbers by reference and by %val, shared arrays
! by Cray pointers.
      program shared
      include 'jiaf.h'
      integer n, i, begin, end, lock, bytes, total
      parameter (n = 3000)
      integer a(n), sum
      pointer (pa, a), (ps, sum)
      real*4 start
      integer values(2), results(2)

      call jiaf_init()
      bytes = 4 * n
      lock = 7
      pa = jia_alloc3(bytes, 4096, 0)
      ps = jia_alloc(%val(4))
      start = jia_clock()
      call jia_barrier()
      begin = 1
      end = n
      call jia_divtask(begin, end)
      do i = begin, end
         a(i) = i
      end do
      call jia_barrier()
      total = 0
      do i = begin, end
         total = total + a(n + 1 - i)
      end do
      call jia_lock(lock)
      sum = sum + total
      call jia_unlock(%val(7))
      call jia_setcv(%val(jiapid))
      call jia_waitcv(mod(jiapid + 1, jiahosts))
      values(1) = jiapid
      values(2) = 1
      call jia_reduce(values, results, 2, 0, %val(0))
      call jia_bcast(results, %val(8), 0)
      call jia_barrier()
      if (results(2) .ne. jiahosts) call jia_error('a wrong count')
      if (jia_clock() .lt. start) call jia_error('time goes back')
      if (jiapid .eq. 0) then
         print *, 'sum', sum, 'of', jiahosts, 'ranks', results(1)
      end if
      call jia_exit()
      end

! SPDX-License-Identifier: Apache-2.0 OR MIT
! JIAJIA for Fortran 77: include 'jiaf.h' in each program unit, in
! fixed or free form, and link with -ljia. See jia(7).
!
!     call jiaf_init()
!     pointer (p, a)            with gfortran -fcray-pointer
!     p = jia_alloc(4 * n)
!     call jia_lock(0)
!
! Arguments go by reference or, as in JIAJIA's programs, by %val.
      external jiaf_init, jia_init, jia_exit, jia_error
      external jia_lock, jia_unlock, jia_barrier, jia_wait
      external jia_setcv, jia_resetcv, jia_waitcv
      external jia_send, jia_recv, jia_reduce, jia_bcast
      external jia_config, jia_divtask, jia_distask, jia_loadcheck
      external jia_alloc, jia_alloc1, jia_alloc2, jia_alloc2p
      external jia_alloc3, jia_alloc4, jia_alloc_array
      external jia_alloc_random, jia_free
      external jia_startstat, jia_stopstat, jia_clock
      integer*8 jia_alloc, jia_alloc1, jia_alloc2, jia_alloc2p
      integer*8 jia_alloc3, jia_alloc4, jia_alloc_array
      integer*8 jia_alloc_random
      integer*4 jia_recv, jia_startstat, jia_stopstat
      real*4 jia_clock
      common /jia/ jiapid, jiahosts
      integer*4 jiapid, jiahosts

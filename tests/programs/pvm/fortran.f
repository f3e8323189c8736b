c Every call of PVM's Fortran library, between a task and two that it
c spawns. What it prints depends on neither tids nor times.
      program calls
      include 'fpvm3.h'
      integer parent
      call pvmfparent(parent)
      if (parent .lt. 0) then
          call first()
      else
          call child(parent)
      end if
      end

c Prints a result that must be the same everywhere.
      subroutine say(what, n)
      character*(*) what
      integer n
      print '(a,a,i0)', what, ' ', n
      end

      subroutine yes(what, holds)
      character*(*) what
      logical holds
      print '(a,a,l1)', what, ' ', holds
      end

      subroutine first()
      include 'fpvm3.h'
      integer me, tids(0:1), info, bufid, old, bytes, tag, tid, i
      integer host
      call pvmfmytid(me)
      call yes('mytid', me .gt. 0)
      call machine(me, host)
      call options()
      call boxes()
      call texts()
      call pvmfcatchout(0, info)
      call say('catchout', info)
      call pvmfspawn('fortran   ', PVMTASKDEFAULT, '*', 2, tids, info)
      call say('spawn', info)
      call pvmfspawn('no such program', PVMTASKDEFAULT, '*', 1, i, info)
      call say('spawn nothing', info)
      call say('its slot', i)
      call pvmfspawn('fortran', PVMTASKHOST, 'nowhere ', 1, i, info)
      call say('spawn nowhere', info)
      call pvmfnotify(PVMTASKEXIT, 77, 2, tids, info)
      call say('notify', info)
      call alive(tids, host)

c     Packing, by three ways of sending.
      call sends(tids(0))
      call pvmfinitsend(PVMDATADEFAULT, bufid)
      i = 42
      call pvmfpack(INTEGER4, i, 1, 1, info)
      call pvmfmcast(2, tids, 5, info)
      call say('mcast', info)
      call pvmfpsend(tids(1), 6, 'psend me', 8, BYTE1, info)
      call say('psend', info)

c     What comes back.
      do 10 i = 0, 1
          call pvmfrecv(tids(i), 7, bufid)
          call yes('recv', bufid .gt. 0)
          call pvmfbufinfo(bufid, bytes, tag, tid, info)
          call say('bufinfo', info)
          call say('bytes', bytes)
          call say('tag', tag)
          call yes('from', tid .eq. tids(i))
          call pvmfunpack(INTEGER4, old, 1, 1, info)
          call say('unpack', info)
          call say('child says', old)
10    continue
c     Handlers are called for messages that come after this.
      call handlers(tids)
      call ends(tids)
      call pvmfexit(info)
      call say('exit', info)
c     The daemon tells its tasks to end.
      call signal(15, 1)
      call pvmfhalt(info)
      print '(a)', 'halted'
      end

      subroutine machine(me, host)
      include 'fpvm3.h'
      integer me, host, nhost, narch, tid, speed, info, i, sibling
      integer code, s, us, ds, dus
      character*20 name
      character*4 short
      character*20 arch
      call pvmfsiblings(nhost, 0, sibling)
      call yes('siblings', nhost .le. 1)
      do 20 i = 1, 2
          call pvmfconfig(nhost, narch, tid, name, arch, speed, info)
          call say('config', info)
          call say('nhost', nhost)
          call say('narch', narch)
          call say('speed', speed)
          print '(a,a,a,a)', '[', name, arch, ']'
20    continue
      call pvmfconfig(nhost, narch, tid, short, short, speed, info)
      print '(a,a,a)', '[', short, ']'
      nhost = -1
      call pvmfconfig(nhost, narch, tid, short, short, speed, info)
      call say('config anew', info)
      call pvmftidtohost(me, host)
      call yes('tidtohost', host .eq. tid)
      call pvmfmstat(name, info)
      call say('mstat', info)
      call pvmfmstat('nowhere', info)
      call say('mstat of none', info)
      call pvmfarchcode(arch, code)
      call yes('archcode', code .gt. 0)
      call pvmfarchcode('VAX9000', code)
      call say('archcode of none', code)
      call pvmfhostsync(host, s, us, ds, dus, info)
      call say('hostsync', info)
      call yes('clock', s .gt. 1000000000 .and. us .ge. 0)
      call yes('delta', abs(ds) .le. 1 .and. abs(dus) .lt. 1000000)
      call pvmfhostsync(5, s, us, ds, dus, info)
      call say('hostsync of none', info)
      call pvmfaddhost('no.such.host.invalid', info)
      call say('addhost', info)
      call pvmfaddhost(name, info)
      call say('addhost twice', info)
      call pvmfdelhost('nowhere', info)
      call say('delhost', info)
      call pvmfstartpvmd('-d0   -x ', 1, info)
      call say('startpvmd', info)
      call pvmfsleep(0)
      end

      subroutine options()
      include 'fpvm3.h'
      integer old, info
      call pvmfgetopt(PVMROUTE, old)
      call say('route', old)
      call pvmfsetopt(PVMROUTE, PVMROUTEDIRECT, old)
      call say('route before', old)
      call pvmfgetopt(PVMROUTE, old)
      call say('route now', old)
      call pvmfsetopt(PVMROUTE, 99, old)
      call say('no route', old)
      call pvmfgetopt(99, old)
      call say('no option', old)
      call pvmfgetopt(PVMAUTOERR, old)
      call say('autoerr', old)
      call pvmfsetopt(PVMAUTOERR, 0, old)
      call pvmfperror('it says ', info)
      call say('perror', info)
      end

      subroutine boxes()
      include 'fpvm3.h'
      integer bufid, old, info, ctx, n, nentries, i(8), o(8), f(8)
      character*12 name
      call pvmfgetsbuf(bufid)
      call say('no sbuf', bufid)
      call pvmfgetrbuf(bufid)
      call say('no rbuf', bufid)
      call pvmfmkbuf(PVMDATARAW, bufid)
      call yes('mkbuf', bufid .gt. 0)
      call pvmfsetsbuf(bufid, old)
      call say('setsbuf', old)
      call pvmfgetsbuf(old)
      call yes('sbuf', old .eq. bufid)
      call pvmfpack(STRING, 'in the box', 10, 1, info)
      call say('pack', info)
      call pvmfputinfo('box one ', bufid, PVMMBOXDEFAULT, info)
      call say('putinfo', info)
      call pvmfputinfo('box one', bufid, PVMMBOXDEFAULT, info)
      call say('putinfo twice', info)
      call pvmfgetmboxinfo('box one', name, n, nentries, i, o, f, info)
      print '(a,a,a)', '[', name, ']'
      call say('entries', nentries)
      call say('index', i(1))
      call say('flags', f(1))
      call pvmfrecvinfo('box one', 0, PVMMBOXDEFAULT, old)
      call yes('recvinfo', old .gt. 0)
      call pvmfsetrbuf(old, info)
      call yes('setrbuf', info .eq. old)
      call pvmfunpack(STRING, name, 10, 1, info)
      print '(a,a)', 'box: ', name(1:10)
      call pvmffreebuf(old, info)
      call say('freebuf', info)
      call pvmffreebuf(old, info)
      call say('freebuf twice', info)
      call pvmfrecvinfo('box two', 0, PVMMBOXDEFAULT, old)
      call say('recvinfo of none', old)
      call pvmfdelinfo('box one', 0, PVMMBOXDEFAULT, info)
      call say('delinfo', info)
      call pvmfdelinfo('box one', 0, PVMMBOXDEFAULT, info)
      call say('delinfo twice', info)
      call pvmffreebuf(bufid, info)
      call pvmfpack(99, 1, 1, 1, info)
      call say('no type', info)
      call pvmfunpack(99, n, 1, 1, info)
      call say('no type', info)
      call pvmfgetcontext(ctx)
      call say('context', ctx)
      call pvmfnewcontext(n)
      call yes('newcontext', n .gt. 0)
      call pvmfsetcontext(n, old)
      call say('setcontext', old)
      call pvmfsetcontext(ctx, old)
      call yes('setcontext back', old .eq. n)
      call better(n)
      end

c Where stock PVM is wrong: lines with a star.
      subroutine better(ctx)
      include 'fpvm3.h'
      integer ctx, info, n, nentries, i(8), o(8), f(8), j
      character*5 name
      call pvmffreecontext(ctx, info)
      call say('* freecontext', info)
      call pvmfsetcontext(0, n)
      call say('* was in', n)
      call pvmfinitsend(PVMDATADEFAULT, n)
      call pvmfputinfo('fbox1', n, PVMMBOXDEFAULT, info)
      call pvmfputinfo('fbox2', n, PVMMBOXDEFAULT, info)
      n = -1
      do 95 j = 1, 3
          info = -99
          call pvmfgetmboxinfo('fbox*', name, n, nentries, i, o, f,
     *        info)
          print '(a,a,1x,i0,1x,i0)', '* ', name, n, info
95    continue
      end

c Names as long as they may be, and one longer.
      subroutine texts()
      include 'fpvm3.h'
      integer info
      character*300 long
      long = ' '
      call pvmfmstat(long, info)
      call say('blank', info)
      long(1:256) = repeat('x', 256)
      call pvmfmstat(long, info)
      call say('256', info)
      long(257:257) = 'x'
      call pvmfmstat(long, info)
      call say('257', info)
      call pvmfaddhost(long, info)
      call say('257', info)
      call pvmfdelhost(long, info)
      call say('257', info)
      call pvmfarchcode(long, info)
      call say('257', info)
      call pvmfspawn(long, 0, '*', 1, info, info)
      call say('257', info)
      call pvmfspawn('x', 1, long, 1, info, info)
      call say('257', info)
      call pvmfputinfo(long, 1, 0, info)
      call say('257', info)
      call pvmfrecvinfo(long, 0, 0, info)
      call say('257', info)
      call pvmfdelinfo(long, 0, 0, info)
      call say('257', info)
      call pvmfjoingroup(long(1:32), info)
      call say('32', info)
      call pvmflvgroup(long(1:32), info)
      call say('32', info)
      call pvmfgsize(long(1:32), info)
      call say('32', info)
      end

      subroutine alive(tids, host)
      include 'fpvm3.h'
      integer tids(0:1), host, ntask, tid, parent, where, flag, info
      integer seen, i
      character*30 file
      call pvmfpstat(tids(0), info)
      call say('pstat', info)
      seen = 0
      ntask = -1
      do 30 i = 1, 20
          call pvmftasks(0, ntask, tid, parent, where, flag, file, info)
          if (info .ne. 1) call say('tasks', info)
          if (tid .eq. tids(1)) then
              call yes('its host', where .eq. host)
              print '(a,a,a)', '[', file, ']'
              seen = seen + 1
          end if
          if (i .eq. ntask) goto 31
30    continue
31    call say('seen', seen)
      call pvmftasks(5, ntask, tid, parent, where, flag, file, info)
      call say('tasks of none', info)
      end

      subroutine sends(tid)
      include 'fpvm3.h'
      integer tid, encoding, bufid, info, i
      integer codes(3)
      integer*2 h(6)
      integer n(6)
      integer*8 l(6)
      real r(6)
      complex c(6)
      double precision d(6)
      complex*16 z(6)
      data codes /PVMDATADEFAULT, PVMDATARAW, PVMDATAINPLACE/
      do 40 i = 1, 6
          h(i) = int(-i, 2)
          n(i) = 100000 * i
          l(i) = 10000000000_8 * i
          r(i) = 0.5 * i
          c(i) = cmplx(i, -i)
          d(i) = 0.25d0 * i
          z(i) = dcmplx(i, 10 * i)
40    continue
      do 50 encoding = 1, 3
          call pvmfinitsend(codes(encoding), bufid)
          call yes('initsend', bufid .gt. 0)
          call pvmfpack(STRING, 'a string', 8, 1, info)
          call pvmfpack(BYTE1, 'bytes', 3, 2, info)
          call pvmfpack(INTEGER2, h, 3, 2, info)
          call pvmfpack(INTEGER4, n, 3, 2, info)
          call pvmfpack(INTEGER8, l, 6, 1, info)
          call pvmfpack(REAL4, r, 6, 1, info)
          call pvmfpack(COMPLEX8, c, 2, 3, info)
          call pvmfpack(REAL8, d, 2, 2, info)
          call pvmfpack(COMPLEX16, z, 6, 1, info)
          call say('packed', info)
          call pvmfsend(tid, 4, info)
          call say('send', info)
50    continue
      call pvmfsend(5, 4, info)
      call say('send to none', info)
      end

      subroutine receives(parent)
      include 'fpvm3.h'
      integer parent, bufid, info, i, sum
      character*8 s
      integer*2 h(3)
      integer n(3)
      integer*8 l(6)
      real r(6)
      complex c(2)
      double precision d(2)
      complex*16 z(6)
      sum = 0
      do 60 i = 1, 3
          call pvmfrecv(parent, 4, bufid)
          s = ' '
          call pvmfunpack(STRING, s, 8, 1, info)
          if (s .eq. 'a string') sum = sum + 1
          call pvmfunpack(BYTE1, s, 3, 1, info)
          if (s(1:3) .eq. 'bts') sum = sum + 10
          call pvmfunpack(INTEGER2, h, 3, 1, info)
          call pvmfunpack(INTEGER4, n, 3, 1, info)
          call pvmfunpack(INTEGER8, l, 6, 1, info)
          call pvmfunpack(REAL4, r, 6, 1, info)
          call pvmfunpack(COMPLEX8, c, 2, 1, info)
          call pvmfunpack(REAL8, d, 2, 1, info)
          call pvmfunpack(COMPLEX16, z, 6, 1, info)
          if (info .eq. 0) sum = sum + 100
          if (h(3) .eq. -5 .and. n(3) .eq. 500000) sum = sum + 1000
          if (l(6) .eq. 60000000000_8) sum = sum + 10000
          if (r(6) .eq. 3.0 .and. c(2) .eq. (4.0, -4.0))
     *        sum = sum + 100000
          if (d(2) .eq. 0.75d0 .and. z(6) .eq. (6d0, 60d0))
     *        sum = sum + 1000000
          call pvmfunpack(INTEGER4, n, 1, 1, info)
          if (info .eq. PvmNoData) sum = sum + 10000000
60    continue
      call answer(parent, sum)
      end

      subroutine answer(parent, n)
      include 'fpvm3.h'
      integer parent, n, bufid, info
      call pvmfinitsend(PVMDATADEFAULT, bufid)
      call pvmfpack(INTEGER4, n, 1, 1, info)
      call pvmfsend(parent, 7, info)
      end

c The first of the two unpacks, the second receives in other ways.
      subroutine child(parent)
      include 'fpvm3.h'
      integer parent, me, nsib, sibling, bufid, info, n, i
      integer from, tag, count
      character*8 s
      call pvmfmytid(me)
      call pvmfsiblings(nsib, 0, sibling)
      call pvmfsetopt(PVMAUTOERR, 0, info)
      if (sibling .eq. me) then
          call receives(parent)
      else
          n = 0
          call pvmfsiblings(nsib, 1, sibling)
          if (nsib .eq. 2 .and. sibling .eq. me) n = 1
          call pvmfsiblings(nsib, 2, sibling)
          if (sibling .eq. PvmNoTask) n = n + 10
          call pvmfprecv(parent, 6, s, 8, BYTE1, from, tag, count, info)
          if (s .eq. 'psend me' .and. from .eq. parent) n = n + 100
          if (tag .eq. 6 .and. count .eq. 8) n = n + 1000
          call pvmfprobe(-1, 99, info)
          if (info .eq. 0) n = n + 10000
          call pvmfnrecv(-1, 99, info)
          if (info .eq. 0) n = n + 100000
          call pvmftrecv(-1, 99, 0, 1000, info)
          if (info .eq. 0) n = n + 1000000
          call pvmftrecv(parent, 5, -1, 0, bufid)
          call pvmfunpack(INTEGER4, i, 1, 1, info)
          if (i .eq. 42) n = n + 10000000
          call answer(parent, n)
      end if
      call groupwork(.false.)
c     A message for the first task's handler.
      call pvmfinitsend(PVMDATADEFAULT, bufid)
      call pvmfsend(parent, 8, info)
c     Until a signal ends it.
      call pvmfrecv(-1, 99, bufid)
      end

      subroutine groups(tids)
      include 'fpvm3.h'
      integer tids(0:1), info
      call pvmfgsize('nobody', info)
      call say('no group', info)
      call pvmfjoingroup(' ', info)
      call say('no name', info)
      call groupwork(.true.)
      call pvmfgetinst('team', tids(0), info)
      call yes('inst of a child', info .gt. 0)
      call pvmfgetinst('team', 5, info)
      call say('inst of none', info)
      call pvmfgettid('team', 9, info)
      call say('tid of none', info)
      end

c All three: the first task is instance 0.
      subroutine groupwork(talks)
      include 'fpvm3.h'
      external PvmSum, PvmMax, PvmMin, PvmProduct, bits
      logical talks
      integer inst, info, size, tid, me, i, bufid, ready
      integer mine(2), all(6), part(2), both(3)
      call pvmfmytid(me)
      if (talks) then
          call pvmfjoingroup('team  ', inst)
          call say('instance', inst)
          call pvmfinitsend(PVMDATADEFAULT, bufid)
          call pvmfputinfo('ready', bufid, PVMMBOXDEFAULT, info)
      else
          call pvmfrecvinfo('ready', 0, PVMMBOXWAITFORINFO, ready)
          call pvmfjoingroup('team', inst)
      end if
      call pvmfbarrier('team', 3, info)
      if (talks) call say('barrier', info)
      call pvmfgsize('team', size)
      if (talks) call say('size', size)
      call pvmfgettid('team', inst, tid)
      if (talks) call yes('tid', tid .eq. me)
      call pvmfgetinst('team', me, i)
      if (talks) call yes('inst', i .eq. inst)
      if (talks) then
          call pvmfinitsend(PVMDATADEFAULT, bufid)
          call pvmfpack(INTEGER4, 11, 1, 1, info)
          call pvmfbcast('team', 20, info)
          call say('bcast', info)
          i = 11
      else
          call pvmfrecv(-1, 20, bufid)
          call pvmfunpack(INTEGER4, i, 1, 1, info)
      end if
      mine(1) = inst + i
      mine(2) = 10 * inst + i
      call pvmfgather(all, mine, 2, INTEGER4, 21, 'team', 0, info)
      if (talks) then
          call say('gather', info)
          print '(6(i0,1x))', all
          all = all + 1
      end if
      call pvmfscatter(part, all, 2, INTEGER4, 22, 'team', 0, info)
      if (talks) call say('scatter', info)
      both(1) = part(1)
      both(2) = part(2)
      both(3) = inst
      call pvmfreduce(PvmSum, both, 3, INTEGER4, 23, 'team', 0, info)
      if (talks) then
          call say('reduce', info)
          print '(3(i0,1x))', both
      end if
      both(1) = inst + 1
      call pvmfreduce(PvmMax, both, 1, INTEGER4, 24, 'team', 0, info)
      if (talks) call say('max', both(1))
      both(1) = inst + 1
      call pvmfreduce(PvmMin, both, 1, INTEGER4, 25, 'team', 0, info)
      if (talks) call say('min', both(1))
      both(1) = inst + 2
      call pvmfreduce(PvmProduct, both, 1, INTEGER4, 26, 'team', 0,
     *    info)
      if (talks) call say('product', both(1))
      both(1) = 2 ** inst
      call pvmfreduce(bits, both, 1, INTEGER4, 27, 'team', 0, info)
      if (talks) call say('own function', both(1))
      call pvmffreezegroup('team', 3, info)
      if (talks) call say('freezegroup', info)
      call pvmfbarrier('team', 3, info)
      if (talks) call say('barrier of frozen', info)
      call pvmflvgroup('elsewhere', info)
      if (talks) call say('lvgroup of none', info)
      end

c A function of our own for pvmfreduce.
      subroutine bits(type, x, y, count, info)
      integer type, x(*), y(*), count, info, i
      do 70 i = 1, count
          x(i) = ior(x(i), y(i))
70    continue
      end

      subroutine handlers(tids)
      include 'fpvm3.h'
      external handle
      integer handle, tids(0:1), mid, info, bufid, ncalls
      common /handled/ ncalls
      ncalls = 0
      call pvmfaddmhf(tids(0), 8, 0, -7, handle, mid)
      call yes('addmhf', mid .ge. 0)
      call groups(tids)
80    call pvmfnrecv(-1, 98, bufid)
      if (ncalls .eq. 0) goto 80
      call say('handled', ncalls)
      call pvmfdelmhf(mid, info)
      call say('delmhf', info)
      call pvmfdelmhf(mid, info)
      call say('delmhf twice', info)
      end

      integer function handle(bufid)
      integer bufid, ncalls
      common /handled/ ncalls
      ncalls = ncalls + 1
      handle = 0
      end

c One child is killed, the other ended by a signal.
      subroutine ends(tids)
      include 'fpvm3.h'
      integer tids(0:1), info, bufid, i, tid
      logical known
      call pvmfkill(tids(0), info)
      call say('kill', info)
      call pvmfsendsig(tids(1), 15, info)
      call say('sendsig', info)
      do 90 i = 1, 2
          call pvmfrecv(-1, 77, bufid)
          call pvmfunpack(INTEGER4, tid, 1, 1, info)
          known = tid .eq. tids(0) .or. tid .eq. tids(1)
          call yes('has ended', known)
90    continue
      call pvmfpstat(tids(0), info)
      call say('pstat', info)
      call pvmfkill(tids(0), info)
      call say('kill twice', info)
      call pvmfsendsig(5, 15, info)
      call say('sendsig to none', info)
      end

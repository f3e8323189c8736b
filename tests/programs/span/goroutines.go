// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// A Go program for nagaya span(1): goroutines with small stacks that make system calls, the
// garbage collector, timers, preemption by SIGURG, signals, children, sockets, and threads.
package main

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func check(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

// Goroutines that make system calls on stacks of 2 KB, and grow them.
func calls() int {
	var group sync.WaitGroup
	var sum atomic.Int64
	for k := 0; k < 64; k++ {
		k := k
		group.Add(1)
		go func() {
			defer group.Done()
			for n := 0; n < 200; n++ {
				syscall.Getppid()
			}
			sum.Add(int64(deep(k)))
		}()
	}
	group.Wait()
	return int(sum.Load())
}

func deep(n int) int {
	var block [128]byte
	block[n%128] = 1
	syscall.Getppid()
	if n == 0 {
		return int(block[0])
	}
	return deep(n-1) + int(block[n%128])
}

type tree struct {
	left, right *tree
	text        []byte
}

func grow(depth int) *tree {
	if depth == 0 {
		return &tree{text: []byte("leaf")}
	}
	return &tree{grow(depth - 1), grow(depth - 1), make([]byte, 64)}
}

func (t *tree) leaves() int {
	if t.left == nil {
		return len(t.text) / 4
	}
	return t.left.leaves() + t.right.leaves()
}

// Trees that several threads allocate, collected often.
func collect() int {
	debug.SetGCPercent(20)
	var group sync.WaitGroup
	var sum atomic.Int64
	for n := 0; n < 4; n++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for n := 0; n < 10; n++ {
				sum.Add(int64(grow(10).leaves()))
			}
		}()
	}
	group.Wait()
	runtime.GC()
	return int(sum.Load())
}

// A loop without calls is preempted by a signal, so that others run and the collector can stop it.
func preempt() string {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var stop atomic.Bool
	done := make(chan int)
	go func() {
		turns := 0
		for !stop.Load() {
			turns++
		}
		done <- turns
	}()
	time.Sleep(20 * time.Millisecond)
	runtime.GC()
	stop.Store(true)
	if <-done == 0 {
		return "nothing"
	}
	return "preempted"
}

func timers() int {
	fired := make(chan int, 100)
	for k := 0; k < 50; k++ {
		k := k
		time.AfterFunc(time.Duration(k%10)*time.Millisecond, func() { fired <- k })
	}
	sum := 0
	for n := 0; n < 50; n++ {
		sum += <-fired
	}
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for n := 0; n < 20; n++ {
		<-ticker.C
	}
	return sum
}

func signals() int {
	heard := make(chan os.Signal, 100)
	signal.Notify(heard, syscall.SIGUSR1)
	defer signal.Stop(heard)
	count := 0
	for n := 0; n < 20; n++ {
		check(syscall.Kill(os.Getpid(), syscall.SIGUSR1))
		<-heard
		count++
	}
	return count
}

// A nil pointer and an overflow of integers' division are panics.
func faults() (text string) {
	for k := 0; k < 2; k++ {
		k := k
		func() {
			defer func() { text += fmt.Sprint(recover() != nil, " ") }()
			var none *tree
			zero := 0
			if k == 0 {
				none.text = nil
			} else {
				fmt.Println(1 / zero)
			}
		}()
	}
	return
}

func children() string {
	var group sync.WaitGroup
	var texts [4]string
	for k := range texts {
		k := k
		group.Add(1)
		go func() {
			defer group.Done()
			command := exec.Command("/bin/sh", "-c", fmt.Sprintf("read line; echo $line %d", k))
			command.Stdin = bytes.NewBufferString("child\n")
			text, err := command.Output()
			check(err)
			texts[k] = string(bytes.TrimSpace(text))
		}()
	}
	group.Wait()
	return fmt.Sprint(texts)
}

func sockets() uint32 {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	defer listener.Close()
	go func() {
		for {
			peer, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer peer.Close()
				io.Copy(peer, peer)
			}()
		}
	}()
	var group sync.WaitGroup
	sums := make([]uint32, 8)
	for k := range sums {
		k := k
		group.Add(1)
		go func() {
			defer group.Done()
			peer, err := net.Dial("tcp", listener.Addr().String())
			check(err)
			defer peer.Close()
			text := bytes.Repeat([]byte{byte(k)}, 10000)
			go func() {
				peer.Write(text)
				peer.(*net.TCPConn).CloseWrite()
			}()
			back, err := io.ReadAll(peer)
			check(err)
			sums[k] = crc32.ChecksumIEEE(back)
		}()
	}
	group.Wait()
	all := uint32(0)
	for _, sum := range sums {
		all += sum
	}
	return all
}

// Goroutines that keep a thread each.
func threads() int {
	var group sync.WaitGroup
	var together sync.WaitGroup
	tids := sync.Map{}
	together.Add(40)
	for n := 0; n < 40; n++ {
		group.Add(1)
		go func() {
			defer group.Done()
			runtime.LockOSThread()
			tids.Store(syscall.Gettid(), true)
			together.Done()
			together.Wait()
		}()
	}
	group.Wait()
	count := 0
	tids.Range(func(_, _ any) bool { count++; return true })
	return count
}

func main() {
	// More than there may be processors, so that there are threads to be spread.
	runtime.GOMAXPROCS(4)
	fmt.Println("calls", calls())
	fmt.Println("collect", collect())
	fmt.Println("preempt", preempt())
	fmt.Println("timers", timers())
	fmt.Println("signals", signals())
	fmt.Println("faults", faults())
	fmt.Println("children", children())
	fmt.Println("sockets", sockets())
	fmt.Println("threads", threads())
}

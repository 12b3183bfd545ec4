package main

import (
	"io"
	"net"
	"os"
	"time"
)

const copied = 512 << 20
const copyBlock = 64 << 10

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func temporaryFile() *os.File {
	f := must(os.CreateTemp("", "go_bench"))
	os.Remove(f.Name())
	return f
}

func filledFile() *os.File {
	f := temporaryFile()
	some := make([]byte, copyBlock)
	for i := range some {
		some[i] = 1
	}
	for n := 0; n < copied; n += copyBlock {
		must(f.Write(some))
	}
	must(f.Seek(0, io.SeekStart))
	return f
}

func connected() (net.Conn, net.Conn) {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	accepted := make(chan net.Conn)
	go func() { accepted <- must(l.Accept()) }()
	return must(net.Dial("tcp", l.Addr().String())), <-accepted
}

func readAll(c net.Conn) chan int64 {
	arrived := make(chan int64)
	go func() {
		into := make([]byte, copyBlock)
		var sum int64
		for {
			n, err := c.Read(into)
			sum += int64(n)
			if err == io.EOF {
				arrived <- sum
				return
			}
			must(n, err)
		}
	}()
	return arrived
}

func measureCopies(name string) bool {
	var work func() int64
	switch name {
	case "filecopy":
		from, to := filledFile(), temporaryFile()
		work = func() int64 { return must(io.Copy(to, from)) }
	case "sendfile":
		from := filledFile()
		here, there := connected()
		work = func() int64 {
			arrived := readAll(there)
			must(io.Copy(here, from))
			here.Close()
			return <-arrived
		}
	case "proxy":
		client, in := connected()
		out, server := connected()
		work = func() int64 {
			arrived := readAll(server)
			go func() {
				some := make([]byte, copyBlock)
				for n := 0; n < copied; n += copyBlock {
					must(client.Write(some))
				}
				client.Close()
			}()
			must(io.Copy(out, in))
			out.Close()
			return <-arrived
		}
	default:
		return false
	}
	before, begin := cpu(), time.Now()
	require(work() == copied, "copies: not all of it arrived")
	took := ms(time.Since(begin))
	figure(name+"-cpu", cpu()-before, "ms-cpu")
	figure(name, took, "ms")
	return true
}

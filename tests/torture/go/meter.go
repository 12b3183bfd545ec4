package main

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

var base = time.Now()

// now returns the time since the program began, in nanoseconds.
func now() int64 { return int64(time.Since(base)) }

// spin uses CPU: so many steps of a chain of multiplications, four cycles each, as ../weft does.
//
//go:noinline
func spin(steps int64) uint64 {
	x := uint64(1)
	for i := int64(0); i < steps; i++ {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

func measureStepsPerUs() int64 {
	const steps = 10000
	best := int64(math.MaxInt64)
	for i := 0; i < 100; i++ {
		begin := now()
		spin(steps)
		if d := now() - begin; d < best {
			best = d
		}
	}
	return steps * 1000 / best
}

type wait int

// What a goroutine waited for; ../weft/meter.hpp says what each means.
const (
	waitYield wait = iota
	waitFresh
	waitTimer
	waitWake
	waitIO
	waitBack
	waitHog
)

var waitNames = [...]string{"yield", "fresh", "timer", "wake", "io", "back", "hog"}

const bucketCount = 320

// meter is a histogram of waits, eight buckets to a power of two.
type meter struct {
	buckets [bucketCount]uint64
	worst   int64
	worstAt int64
}

func bucket(ns int64) int {
	if ns < 8 {
		return int(ns)
	}
	power := bits.Len64(uint64(ns)) - 1
	index := (power-2)*8 + int(ns>>(power-3))&7
	if index >= bucketCount {
		return bucketCount - 1
	}
	return index
}

func edge(index int) int64 {
	if index < 8 {
		return int64(index)
	}
	return int64(index%8+9) << (index/8 - 1)
}

func (m *meter) add(ns, at int64) {
	if ns < 0 {
		ns = 0
	}
	atomic.AddUint64(&m.buckets[bucket(ns)], 1)
	for {
		worst := atomic.LoadInt64(&m.worst)
		if ns <= worst {
			return
		}
		if atomic.CompareAndSwapInt64(&m.worst, worst, ns) {
			atomic.StoreInt64(&m.worstAt, at)
			return
		}
	}
}

func (m *meter) count() uint64 {
	sum := uint64(0)
	for _, b := range m.buckets {
		sum += b
	}
	return sum
}

func (m *meter) percentile(q float64) int64 {
	rank := uint64(math.Ceil(float64(m.count()) * q))
	seen := uint64(0)
	for i, b := range m.buckets {
		seen += b
		if seen >= rank && seen != 0 {
			if edge(i) < m.worst {
				return edge(i)
			}
			return m.worst
		}
	}
	return m.worst
}

// jain returns Jain's index of fairness: 1 if all got equal parts, 1/n if one got everything.
func jain(shares []int64) float64 {
	sum, squares := 0.0, 0.0
	for _, share := range shares {
		x := float64(share)
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(shares)) * squares)
}

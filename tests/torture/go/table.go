package main

import (
	"strconv"
	"strings"
)

// line is a word and its key=value pairs.
type line struct {
	word   string
	values map[string]string
}

// table is a random program; ../table.md describes its format.
type table struct {
	head   line
	groups []line
}

func parseTable(text string) table {
	var lines []line
	for _, one := range strings.Split(text, "\n") {
		fields := strings.Fields(one)
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		l := line{fields[0], map[string]string{}}
		for _, pair := range fields[1:] {
			equals := strings.IndexByte(pair, '=')
			if equals < 0 {
				fail(3, "wrong table: "+pair+" is not key=value")
			}
			l.values[pair[:equals]] = pair[equals+1:]
		}
		lines = append(lines, l)
	}
	if len(lines) < 2 || lines[0].word != "program" {
		fail(3, "wrong table: it takes a line 'program' and at least one group")
	}
	return table{lines[0], lines[1:]}
}

func (l line) number(key string) int64 {
	text, ok := l.values[key]
	if !ok {
		fail(3, "wrong table: "+l.word+" has no "+key)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		fail(3, err)
	}
	return n
}

func (l line) numberOr(key string, otherwise int64) int64 {
	if _, ok := l.values[key]; !ok {
		return otherwise
	}
	return l.number(key)
}

func (l line) numbers(key string) []int {
	var numbers []int
	for _, one := range strings.Split(l.values[key], ",") {
		n, err := strconv.Atoi(one)
		if err != nil {
			fail(3, err)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

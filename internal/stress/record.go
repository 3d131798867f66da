package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
)

// A record keeps in a file how often each program has run and failed, by its checksum, so that the runs of several calls
// add up. A program that has changed begins anew.
type record struct {
	file   string         // "": nothing is kept
	before map[string]int // by package: the runs of former calls

	runs map[string]ran // by package, also of packages that this call does not run
}

// ran is what the file has of one program.
type ran struct {
	sum            string
	runs, failures int
}

// openRecord reads the file, if there is one.
func openRecord(file string, programs []program) (*record, error) {
	r := &record{file: file, before: map[string]int{}, runs: map[string]ran{}}
	text, err := os.ReadFile(file)
	if err != nil && file != "" && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var name string
		var had ran
		if _, err := fmt.Sscan(lines.Text(), &name, &had.sum, &had.runs, &had.failures); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", file, lines.Text(), err)
		}
		r.runs[name] = had
	}
	for _, p := range programs {
		if r.runs[p.name].sum != p.sum {
			r.runs[p.name] = ran{sum: p.sum}
		}
		r.before[p.name] = r.runs[p.name].runs
	}
	return r, nil
}

// add counts one run. The caller has a mutex for all of the record.
func (r *record) add(p program, failed bool) error {
	had := r.runs[p.name]
	had.runs++
	if failed {
		had.failures++
	}
	r.runs[p.name] = had
	if r.file == "" {
		return nil
	}
	var text bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(r.runs)) {
		fmt.Fprintln(&text, name, r.runs[name].sum, r.runs[name].runs, r.runs[name].failures)
	}
	if err := os.WriteFile(r.file+".new", text.Bytes(), 0o666); err != nil {
		return err
	}
	return os.Rename(r.file+".new", r.file)
}

// report prints what the former calls add to this one.
func (r *record) report() (failed bool) {
	if r.file == "" {
		return false
	}
	least := -1
	for _, name := range slices.Sorted(maps.Keys(r.before)) {
		ran := r.runs[name]
		if least < 0 || ran.runs < least {
			least = ran.runs
		}
		if ran.failures > 0 {
			failed = true
			fmt.Printf("FAIL %d of %d runs, those of former calls included: %s\n", ran.failures, ran.runs, name)
		}
	}
	fmt.Printf("stress: with former calls, each of these %d programs ran at least %d times\n", len(r.before), least)
	return failed
}

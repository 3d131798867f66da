package main

import (
	"fmt"
	"os"
	"sync/atomic"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/audit/recorder"
)

// A journalFile is what --journal gives. Who holds a lock must not wait for it, so it is never asked, but says what was wrong.
type journalFile struct {
	file *os.File // stays open until the process ends: a close can take as long as a write
	err  atomic.Pointer[error]
}

// openJournal opens the file to append. path is "" where there is none; then nil is returned.
func openJournal(path string) (*journalFile, error) {
	if path == "" {
		return nil, nil
	}
	if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeNamedPipe != 0 { // to open it waits for a reader
		return nil, usage("--journal: %s is a pipe; give a file", path)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, usage("--journal: %v", err)
	}
	return &journalFile{file: file}, nil
}

func (j *journalFile) hooks(hooks redlock.Hooks) redlock.Hooks {
	if j == nil {
		return hooks
	}
	return recorder.New(j, "").Hooks(hooks)
}

func (j *journalFile) Write(line []byte) (int, error) {
	n, err := j.file.Write(line)
	if err != nil {
		err = fmt.Errorf("the journal is not complete: %w", err)
		j.err.Store(&err)
	}
	return n, err
}

// failed is what was wrong with a write so far.
func (j *journalFile) failed() error {
	if j == nil || j.err.Load() == nil {
		return nil
	}
	return *j.err.Load()
}

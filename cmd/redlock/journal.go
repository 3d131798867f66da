package main

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/audit/recorder"
)

// A journalFile is what --journal gives. A disk may be stuck, and neither the lock nor what is said about it may wait for that.
// So a goroutine of its own writes.
type journalFile struct {
	file     *os.File
	recorder *recorder.Recorder
	lines    chan []byte
	stop     chan struct{} // closed by close
	written  chan struct{} // closed when all is written

	mu  sync.Mutex // guards err; nothing is written under it
	err error      // the first one
}

const (
	journalQueue    = 1000 // lines that wait for the disk; what comes then is missing, and the journal says so
	journalPatience = time.Second
)

// openJournal opens the file to append. path is "" where there is none; then nil is returned.
func openJournal(path string) (*journalFile, error) {
	if path == "" {
		return nil, nil
	}
	j := &journalFile{lines: make(chan []byte, journalQueue), stop: make(chan struct{}), written: make(chan struct{})}
	opened := make(chan error, 1)
	go func() { // until the disk answers, or the process ends
		var err error
		j.file, err = openNoPipe(path)
		opened <- err
	}()
	timer := time.NewTimer(journalPatience)
	defer timer.Stop()
	select {
	case err := <-opened:
		if err != nil {
			return nil, usage("--journal: %v", err)
		}
	case <-timer.C:
		return nil, usage("--journal: %v", errStuck)
	}
	j.recorder = recorder.New(j, "")
	go j.write() // until close; if the disk is stuck, until the process ends
	return j, nil
}

func openNoPipe(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeNamedPipe != 0 { // to open it waits for a reader
		return nil, fmt.Errorf("%s is a pipe; give a file", path)
	}
	return os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
}

func (j *journalFile) write() {
	defer close(j.written)
	for stop := j.stop; stop != nil || len(j.lines) > 0; {
		select {
		case line := <-j.lines:
			if _, err := j.file.Write(line); err != nil {
				j.failed(err)
				j.recorder.Missed(1) // it may be free again later
			}
		case <-stop:
			stop = nil
		}
	}
	if err := j.file.Close(); err != nil {
		j.failed(err)
	}
}

func (j *journalFile) failed(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = err
	}
}

var errStuck = errors.New("the disk does not answer")

// Write is for the recorder, which counts what was not taken.
func (j *journalFile) Write(line []byte) (int, error) {
	select {
	case j.lines <- line:
		return len(line), nil
	default:
		j.failed(errStuck)
		return 0, errStuck
	}
}

// of returns hooks that also write the journal.
func (j *journalFile) of(hooks redlock.Hooks) redlock.Hooks {
	if j == nil {
		return hooks
	}
	return j.recorder.Hooks(hooks)
}

func (j *journalFile) watch(client *redlock.Client) {
	if j != nil {
		j.recorder.Watch(client)
	}
}

// close waits until all is written, for a moment, and returns what is wrong with the journal. The client is closed by then.
func (j *journalFile) close() error {
	if j == nil {
		return nil
	}
	_ = j.recorder.Close() // its error is one of j's
	close(j.stop)
	timer := time.NewTimer(journalPatience)
	defer timer.Stop()
	select {
	case <-j.written:
	case <-timer.C:
		j.failed(errStuck)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return fmt.Errorf("the journal is not complete: %w", j.err)
	}
	return nil
}

package redlock

import (
	"container/list"
	"context"
	"sync"
)

// localQueues keep those of this process who want the same lock in order: one contends, the rest take no part in
// rounds (W1).
type localQueues struct {
	mu sync.Mutex // guards the map and the lists in it
	// byName has the line behind each contender: nil while nobody is. An element is a channel, closed
	// when its turn has come.
	byName map[queueKey]*list.List
}

// A queueKey is told by what is wanted there. A single name may be spelled as several names are.
type queueKey struct {
	names   string
	several bool
}

// join waits until it is the caller's turn to contend. It must be followed by leave unless it fails.
func (l *localQueues) join(ctx context.Context, name queueKey, ending <-chan struct{}) error {
	l.mu.Lock()
	if l.byName == nil {
		l.byName = map[queueKey]*list.List{}
	}
	behind, contended := l.byName[name]
	if !contended {
		l.byName[name] = nil
		l.mu.Unlock()
		return nil
	}
	if behind == nil {
		behind = list.New()
		l.byName[name] = behind
	}
	turn := make(chan struct{})
	place := behind.PushBack(turn)
	l.mu.Unlock()

	var err error
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-ending:
		err = ErrClosed
	}
	l.mu.Lock()
	select {
	case <-turn: // it came all the same: pass it on
		l.mu.Unlock()
		l.leave(name)
	default:
		behind.Remove(place)
		l.mu.Unlock()
	}
	return err
}

// leave gives the turn to the next in line.
func (l *localQueues) leave(name queueKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	behind := l.byName[name]
	if behind == nil || behind.Len() == 0 {
		delete(l.byName, name)
		return
	}
	close(behind.Remove(behind.Front()).(chan struct{}))
}

package redlock

import (
	"container/list"
	"context"
	"sync"
)

// localQueues order the goroutines of this process that want the same lock: one contends, the others queue behind it
// and take no part in rounds (W1).
type localQueues struct {
	mu sync.Mutex // guards the map and the lists in it
	// byName has an entry for each contender: the queue behind it, nil until somebody queues. An element is a channel,
	// closed when its turn has come.
	byName map[queueKey]*list.List
}

// join waits until it is the caller's turn to contend. Unless it fails, leave must follow.
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
	case <-turn: // the turn came at the same moment: pass it on
		l.mu.Unlock()
		l.leave(name)
	default:
		behind.Remove(place)
		l.mu.Unlock()
	}
	return err
}

// leave gives the turn to the next in the queue.
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

package redlock

import (
	"container/list"
	"context"
	"sync"
)

// localQueues order the goroutines of this process that want the same lock: one contends, the others queue behind it
// and take no part in rounds (W1).
type localQueues struct {
	mu     sync.Mutex // guards the map and the lists in it
	byName map[queueKey]localQueue
}

// A localQueue is what is behind one contender.
type localQueue struct {
	// behind is who queues; nil until somebody does. An element is a channel, closed when its turn has come.
	behind *list.List
	// refused is the contender's last refused round that asked all nodes: what is in the way of all who queue (T1). nil:
	// none was since the last of them had the lock.
	refused *round
}

// join waits until it is the caller's turn to contend. Unless it fails, leave must follow. It returns whether somebody was
// ahead, and the last refused round of those who were, also if it fails.
func (l *localQueues) join(ctx context.Context, name queueKey, ending <-chan struct{}) (behind bool, refused *round, err error) {
	l.mu.Lock()
	if l.byName == nil {
		l.byName = map[queueKey]localQueue{}
	}
	q, contended := l.byName[name]
	if !contended {
		l.byName[name] = localQueue{}
		l.mu.Unlock()
		return false, nil, nil
	}
	if q.behind == nil {
		q.behind = list.New()
		l.byName[name] = q
	}
	turn := make(chan struct{})
	place := q.behind.PushBack(turn)
	l.mu.Unlock()

	select {
	case <-turn:
	case <-ctx.Done():
		err = ctx.Err()
	case <-ending:
		err = ErrClosed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	refused = l.byName[name].refused
	if err == nil {
		return true, refused, nil
	}
	select {
	case <-turn: // the turn came at the same moment: pass it on
		l.passOn(name)
	default:
		q.behind.Remove(place)
	}
	return true, refused, err
}

// wasRefused notes the contender's last refused round.
func (l *localQueues) wasRefused(name queueKey, r *round) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.byName[name]
	q.refused = r
	l.byName[name] = q
}

// isAwaited reports whether somebody queues behind the contender.
func (l *localQueues) isAwaited(name queueKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	behind := l.byName[name].behind
	return behind != nil && behind.Len() > 0
}

// leave gives the turn to the next in the queue. won: the contender has the lock, so what refused it is over.
func (l *localQueues) leave(name queueKey, won bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q := l.byName[name]; won && q.refused != nil {
		q.refused = nil
		l.byName[name] = q
	}
	l.passOn(name)
}

// passOn gives the turn to the next in the queue. l.mu is held.
func (l *localQueues) passOn(name queueKey) {
	behind := l.byName[name].behind
	if behind == nil || behind.Len() == 0 {
		delete(l.byName, name)
		return
	}
	close(behind.Remove(behind.Front()).(chan struct{}))
}

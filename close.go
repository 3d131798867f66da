package redlock

import "time"

// Close ends every lease (its context's cause is [ErrClosed]) and every Acquire and TryAcquire that is running (they
// return ErrClosed). It sends the releases of what they had, and waits for the nodes' answers and for the client's
// goroutines. A minimum hold ([Lock.WithMinHold]) stays.
//
// It takes no longer than NodeTimeout if a node does not answer, and no longer than another NodeTimeout if a hook or the
// logger blocks. Such a hook is the only thing that may still run after Close has returned, so a hook may call Close. A
// second call waits for the first. The result is always nil.
func (c *Client) Close() error {
	c.mu.Lock()
	already := c.closed
	c.closed = true
	if c.grace != nil {
		c.grace.Stop()
	}
	c.mu.Unlock()
	if already {
		<-c.ended
		return nil
	}
	close(c.ending)
	timer := time.NewTimer(c.cfg.NodeTimeout)
	defer timer.Stop()
	leases := c.scheduler.drain()
	for _, o := range leases { // all of them, before anything is sent
		o.end(ErrClosed)
	}
	for _, o := range leases {
		o.sendRelease()
	}
	if !c.protocol.omits(callsAwaited) {
		c.underWay.Wait() // while the nodes still take what they leave behind; they have no more than NodeTimeout either
	}
	for _, n := range c.nodes {
		n.close()
	}
	for _, n := range c.nodes {
		select {
		case <-n.ended:
		case <-timer.C:
			timer.Reset(0)
		}
	}
	c.cancel()
	for _, n := range c.nodes {
		<-n.ended
	}
	<-c.scheduler.ended
	c.waiters.wait()
	c.notifier.close(c.cfg.NodeTimeout) // nothing is left that could tell it anything
	close(c.ended)
	return nil
}

// begin counts an Acquire or a Release, for Close to wait for; finish must follow. It reports false if the client is closed.
func (c *Client) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.underWay.Add(1)
	return true
}

func (c *Client) finish() { c.underWay.Done() }

func (c *Client) isClosed() bool {
	select {
	case <-c.ending:
		return true
	default:
		return false
	}
}

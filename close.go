package redlock

// Close ends every lease; the cause of its context is [ErrClosed]. Every Acquire and TryAcquire that is running returns
// ErrClosed. Close then sends the releases, and waits for the nodes' answers and for the client's goroutines. A minimum
// hold ([Lock.WithMinHold]) stays.
//
// Close waits for a node while it answers, which takes seconds after the releases of many thousand leases, and for up to
// NodeTimeout after its last answer. If a hook or the logger blocks, it takes up to another NodeTimeout; such a call is
// the only thing that may still run after Close has returned. So a hook may call Close. Further calls wait for the first
// one. The result is always nil.
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
	began := c.cfg.Clock.Now()
	leases := c.scheduler.drain()
	for _, o := range leases { // L2: all contexts end before anything is sent
		o.end(ErrClosed)
	}
	for _, o := range leases {
		o.sendRelease()
	}
	if !c.protocol.omits(callsAwaited) {
		// These calls still send releases (A5), so they end before the connections close. They take up to NodeTimeout.
		c.underWay.Wait()
	}
	for _, n := range c.nodes {
		n.close()
	}
	for _, n := range c.nodes {
		c.awaitEnd(n, began)
	}
	c.cancel()
	for _, n := range c.nodes {
		<-n.ended
	}
	<-c.scheduler.ended
	c.waiters.wait()
	c.notifier.close(c.cfg.NodeTimeout) // last: no event can come any more
	close(c.ended)
	return nil
}

// awaitEnd waits until the node has sent what is queued and was answered. It gives up once the node has been silent for
// NodeTimeout, or after MaxTTL, when the keys have expired: the releases of many leases take longer than NodeTimeout, though
// the node answers.
func (c *Client) awaitEnd(n *node, began Instant) {
	until := began.Add(c.cfg.NodeTimeout)
	for {
		timer := c.timers.start(until.Sub(c.cfg.Clock.Now()))
		select {
		case <-n.ended:
			c.timers.stop(timer)
			return
		case <-timer.C:
			c.timers.stop(timer)
		}
		longer := min(Instant(n.heardAt.Load()).Add(c.cfg.NodeTimeout), began.Add(c.cfg.MaxTTL))
		if longer <= until {
			return
		}
		until = longer
	}
}

// begin counts a call of Acquire, TryAcquire or Release, so that Close waits for it (L2). It reports false if the
// client is closed; otherwise finish must follow.
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

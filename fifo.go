package redlock

// A fifo is a queue of requests that reuses its memory. The zero value is empty.
type fifo struct {
	items []request
	head  int
}

func (f *fifo) len() int         { return len(f.items) - f.head }
func (f *fifo) oldest() *request { return &f.items[f.head] }

func (f *fifo) push(q request) {
	if f.head > 64 && f.head > len(f.items)/2 { // move the rest to the front, so that the memory is used again
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
	f.items = append(f.items, q)
}

func (f *fifo) pop() request {
	q := f.items[f.head]
	f.items[f.head] = request{}
	f.head++
	if f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
	return q
}

// drain empties the queue and returns what was in it.
func (f *fifo) drain() []request {
	rest := append([]request(nil), f.items[f.head:]...)
	*f = fifo{}
	return rest
}

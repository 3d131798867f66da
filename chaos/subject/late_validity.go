package subject

import "context"

// LateValidity is [PlainRedlock] with one of its commonest mistakes: a lease counts from the end of the round that
// acquired it, so the time of that round is not taken off. It waits for each node for as long as a lease lasts.
//
// Its weakness: a client whose replies are slow believes for longer than its keys last.
type LateValidity struct{}

// Name returns "late-validity".
func (LateValidity) Name() string { return "late-validity" }

// About describes the subject in one line.
func (LateValidity) About() string {
	return "plain-redlock whose leases count from the end of the round: two owners if the replies are slow"
}

// Open connects to all nodes.
func (LateValidity) Open(ctx context.Context, o Options) (Client, error) {
	client, err := PlainRedlock{Patience: o.TTL}.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	c := client.(plainClient)
	c.late = true
	return c, nil
}

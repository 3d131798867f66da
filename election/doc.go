// Package election elects a leader among processes: one of them leads, the others wait, and everybody can see who it is.
// It is a lock of package redlock with a name tag.
//
//	e := election.New(client, "scheduler", election.Options{Label: "web-3"})
//	err := e.Run(ctx, func(ctx context.Context, term *election.Term) error {
//		return schedule(ctx, term.Number()) // ctx ends before anyone else can lead
//	})
//
// Run campaigns again and again. [Election.Campaign] leads once and returns a [Term], which carries the lease. It is
// renewed until [Term.Resign]. If the leader dies or is cut off from the nodes, another process leads after the TTL.
//
// In any process that has a client of the same nodes:
//
//	for leader := range e.Observe(ctx) {
//		if leader.None() {
//			log.Print("nobody leads")
//		} else {
//			log.Printf("%s leads, number %d", leader.Label, leader.Number)
//		}
//	}
//
// # What it promises
//
// At most one [Term] at a time is valid, by its own [Term.Valid], under the assumptions of package redlock. [Term.Number]
// is the fencing token: it grows with each leader. That needs no clock as long as one node that both quorums share still
// has the tokens that it stored.
//
// # What no election can promise
//
// A leader can be paused after it has looked at its term: by garbage collection, by swapping, with its virtual machine.
// When it goes on, another process may lead. No clock and no election can prevent what it then does. What it works on
// can: give [Term.Number] with each change, and refuse smaller numbers than the largest seen. Package fence has this
// ready. Without it, ask [Term.Valid] just before each step that cannot be undone. That makes the window small; it does
// not close it.
//
// While a majority of the nodes is away, nobody is elected, and no term is renewed.
//
// # What observers learn, and when
//
// What an observer hears may be out of date when it acts. Use it to route requests or to show a dashboard. Never take it
// as permission to act as leader: only a valid Term is that.
//
// The leader publishes a message on the nodes when it begins, resigns or finds its term lost, so observers hear of it
// within one round trip. They also ask the nodes every [Options.Poll], and after each message. So they hear of a
// leader that died at most about a Poll after its lease has expired, or from the next leader's message. If the Redis
// user has no right to channels (docs/operations.md), they hear of everything by polling.
//
// Until its lease has expired, a leader that died is still the leader to those who ask the nodes. So is one whose [Term] was
// dropped without Resign; those who observed it then hear that nobody leads.
//
// The label is stored beside the lock, at redlock:leader:<key of the lock>. Only the owner of the lock can write it. It
// says nothing without that owner's lock, expires a TTL after it at the latest, and plays no part in who holds it. If a
// process takes the same name with [redlock.Client.Mutex], it excludes every leader. Observers see a leader without label
// and number then, when they have looked for its label for a NodeTimeout of their client: a leader's label arrives a round
// trip of the leader after its lock.
//
// Each database of a server has elections of its own. A client that connects by [redlock.Node].Dial counts as one of database
// 0 for messages: if Dial selects another one, do not give its elections the names of those of database 0.
package election

// Package redlocktest runs Redis nodes in memory, for tests of code that uses package redlock. The tests need no Redis,
// no Docker and no network, and may run in parallel.
//
//	func TestTheReportRunsAlone(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			nodes := redlocktest.Start(t, 3)
//			client, err := redlock.New(redlock.Config{Nodes: nodes.Nodes()})
//			if err != nil {
//				t.Fatal(err)
//			}
//			defer client.Close()
//
//			lease, err := client.Mutex("report").Acquire(t.Context()) // another process, say
//			if err != nil {
//				t.Fatal(err)
//			}
//			ran, err := runReport(t.Context(), client) // the code under test, which calls TryDo
//			if ran || err != nil {
//				t.Errorf("while the lock is held: ran %v, error %v", ran, err)
//			}
//			if err := lease.Release(t.Context()); err != nil {
//				t.Fatal(err)
//			}
//			nodes.Kill(0) // one of three may be down
//			ran, err = runReport(t.Context(), client)
//			if !ran || err != nil {
//				t.Errorf("while the lock is free: ran %v, error %v", ran, err)
//			}
//		})
//	}
//
// The file example_test.go has two complete tests: of an HTTP handler that answers 409 while a lock is held, and of work
// that loses its lock halfway.
//
// # The nodes
//
// A node is miniredis, with the scripts and commands that a redlock client needs. New nodes grant at once: they are not
// in quarantine, and need no Enroll. Each takes the configuration of the first client that reaches it, whatever it is, also
// with [redlock.Config.Durable]. [redlock.AgreedConfig] decides nothing. From then on they behave as in
// production: a client that is configured otherwise is refused with a [redlock.ConfigError], and a node that was restarted
// is in quarantine. So give each test nodes of its own. It takes less than a millisecond.
//
// # Faults
//
//	Kill(i)           the node is gone, with its data; connections break
//	Restart(i)        it comes back empty, and is in quarantine
//	Pause(i)          it answers nothing until Resume(i), and then executes what it was sent
//	Partition(i)      nothing arrives in either direction until Heal(i), and then everything does
//	Delay(i, d)       each message takes d, so a round trip takes 2d
//	StepClock(i, d)   its clock jumps, so its votes do not count
//
// Pause, Partition, Delay and StepClock of a node are independent of each other and add up.
//
// # Virtual time and real time
//
// The test above runs in a bubble of testing/synctest: in virtual time, in which a lease of 30 s expires in no time, and
// in which a busy machine makes no node late. Call [Start] in the bubble, and close the clients before the bubble ends: it
// waits for all goroutines.
//
// In real time, for example with a real HTTP server, a busy machine may delay answers by more than
// [redlock.Config.NodeTimeout], and calls fail with [redlock.ErrNoQuorum]. So set it to some seconds, and TTL to more than
// twice that.
//
// # Dependencies
//
// A test that imports this package is built with miniredis and its Lua interpreter, gopher-lua, beside what package
// redlock needs. Nothing of Docker is built, and the importer's go.sum has no module of it.
package redlocktest

// Package fence protects what a lock guards from a holder that was paused. It is for the side that is protected: a
// server, a Redis, a database.
//
// A lock with a time limit cannot stop its holder. A process may be paused after it has looked at its lease: by garbage
// collection, by swapping, with its virtual machine. It does not notice.
//
//	A gets the lock, with fencing token 33. Its lease is valid. It is paused.
//	A's lease ends. B gets the lock, with fencing token 34, and writes.
//	A wakes up and writes too. No lock can prevent that, but the resource can: 33 is less than 34.
//
// Martin Kleppmann describes this in "How to do distributed locking"
// (https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html).
//
// A fencing token is what [github.com/quorumlock/redlock.Lease.Fence] returns: a number that grows with each holder. It
// is at least 1 and below 2^53, so it fits into an int64, a bigint and a double. The resource remembers the largest
// token that it has seen, and refuses smaller ones with [ErrStale]. An equal token is the same holder, and is accepted.
//
// # What to use
//
//   - [Gate]: the resource is in the memory of one process: a cache, a queue, a connection.
//   - [Set], [Check], [Script]: the resource is in Redis. It is not one of the Redis servers that grant the lock.
//   - [Table]: the resource is in PostgreSQL, MySQL or SQLite, and is changed in a transaction.
//   - No code of this package: a single row of a database can have its token beside it.
//
// For the last one, give the row a column fence, of type bigint, 0 at first. The row is changed only if the token is
// not smaller:
//
//	UPDATE invoice SET paid = true, fence = $1 WHERE id = $2 AND fence <= $1
//
// No row is changed: the token is stale, or there is no such row. (MySQL does not count a row that already has these
// values, unless the connection has the flag CLIENT_FOUND_ROWS. In go-sql-driver/mysql it is clientFoundRows=true.)
// A row that is deleted takes its token along: if it is made again, an older holder can change it. Mark it as deleted
// instead, or use a [Table], which keeps the tokens elsewhere.
//
// # Six rules
//
//   - Compare and write in one atomic step. Between a comparison and a later write, a newer holder may come.
//   - Give the token before you read, if you write what follows from the reading. Otherwise an older holder can still
//     write after you have read, and your write undoes its change. Gate.Check, Check and Table.Check are for that.
//   - Guard one resource with one lock. Tokens of two locks say nothing about each other.
//   - Give tokens of a lock that one has at a time: of a Mutex, or of the writer of an RWMutex. Readers, and holders of
//     permits, are right beside one another: the one with the smaller token would be refused although its lease is valid.
//   - Stop when you get [ErrStale]. Another holder came later. To try again with the same token cannot help.
//   - After a write without an answer, go on under a larger token: release the lock, acquire it again, and give the new token
//     first. The network may deliver that write when you have long given it up. An equal token is accepted, so it could
//     undo what you wrote since. To write the same value again is safe. So is [Table]: there, the next Check waits until the
//     transaction before it is over.
//
// A token is as durable as the place where it is stored, so keep it where the data are. If a crash loses the newest
// writes, it loses their tokens too, and an older holder may be accepted once more.
package fence

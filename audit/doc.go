// Package audit judges what leases there were in production, from the journals of the processes that had them. It answers one
// question, after an incident or every night: did two hold a lock at the same time? It shares no code with a lock library, and
// imports nothing of this module. Package recorder writes the journals of this library; any other can write them too.
//
// The processes have no clock in common. So a lease is compared with others in three ways, from the most certain one on:
//
//   - Within a process: by its monotonic clock, exactly.
//   - By fencing tokens. Of a mutex, a lease with a larger token was granted later. What one process had in between by these
//     numbers must fit between two leases of another process. If it took longer, two held the lock, whatever the wall clocks
//     show.
//   - By the wall clocks, each of which may be wrong by [Options.ClockError]. An overlap that could come from that is no
//     violation. It is counted ([Result.Close]).
//
// A lease is taken for shorter than it was rather than for longer: it begins when its process knew that it had it, and ends
// when its release was called, when it was known to be lost, or when its validity ended, whichever was first. Where a process
// crashed, that is the last renewal in its journal. So a violation is one, and that there is none proves nothing about leases
// that are not in the journals.
//
// # Violations
//
//   - overlap: two leases of a name at the same time. Readers may have it together; holders of permits, as far as there are
//     permits.
//   - fence_duplicate: two leases of a name with the same fencing token.
//   - fence_inversion: a lease with a smaller fencing token than another that was granted before this one was asked for.
//
// A lock that an operator took away by force, or that was deleted, can show as an overlap: its holder relied on it until it
// was told. The violation says how each of the two leases ended.
package audit

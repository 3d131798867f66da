// Package history is the record of a chaos run: one JSON object per line, ordered by time. It does not depend on any
// lock library, so the judge of a history shares no code with the subject that made it.
package history

// A Kind is the kind of an event.
type Kind string

// The kinds of events.
const (
	Start   Kind = "start"   // the first line: what was run (Run)
	Acquire Kind = "acquire" // a client requests the lock, or goes on with what From had. Op is new and unique
	Queued  Kind = "queued"  // the subject says: since Since, Op has its place in the order of arrival. It may say so late
	Granted Kind = "granted" // Op got the lock: Fence, Token. From now on the client believes that it holds it
	Refused Kind = "refused" // Op did not get it: somebody holds it, or the wait was over
	Failed  Kind = "failed"  // Op ended with an Error: it may have taken effect or not
	Lost    Kind = "lost"    // the holder of Op noticed that its lease is lost; it stopped believing no later than Until
	Release Kind = "release" // the holder of Op begins to release; it stopped believing no later than Until
	Freed   Kind = "freed"   // the release returned; Error is "" or its error
	Read    Kind = "read"    // the holder of Op read Value from the guarded Resource
	Write   Kind = "write"   // the holder of Op sends Value, computed from the value it read, to the Resource
	Written Kind = "written" // the answer of the Resource to that write: OK or refused; with Error: unknown
	Owner   Kind = "owner"   // an observer saw that the lock's key on Node changed to Token ("": free) or Owners; the former ones were seen until Since
	Fault   Kind = "fault"   // a fault of Node or Client begins (Begin) or heals. An instant fault, such as a flush, is one line without Begin
	Note    Kind = "note"    // a Text for people. With Error: the subject of Client panicked; without Client: the scenario was aborted
	End     Kind = "end"     // the last line
)

// A Role is what the holder of a lock may do.
type Role string

// The roles. Except with a read–write lock, everybody has the first.
const (
	Alone  Role = ""       // nobody else may hold the lock: a writer, or the holder of a mutex
	Reader Role = "reader" // several at a time
)

// A LockKind is the kind of the lock under test.
type LockKind string

// The kinds of locks. What the judge needs is also in the events, so an unknown kind is no error.
const (
	Mutex     LockKind = ""
	Fair      LockKind = "fair"       // a mutex in order of arrival
	ReadWrite LockKind = "read-write" // readers, or one writer
	Semaphore LockKind = "semaphore"  // so many permits
	HandOver  LockKind = "hand-over"  // a mutex that goes from client to client
)

// What a subject may leave unsaid of a lease.
const (
	Validity      = "validity"       // whether it is valid: its holder believed for a TTL from its acquire
	FencingTokens = "fencing tokens" // it has none
)

// An Event is one line. Its Kind decides which fields it has; the others are left out.
type Event struct {
	At       int64    `json:"at"`                 // nanoseconds since the run began, by one monotonic clock; never decreases
	Kind     Kind     `json:"kind"`               //
	Client   int      `json:"client,omitempty"`   // from 1
	Op       uint64   `json:"op,omitempty"`       // the acquire that the event belongs to, from 1
	Resource string   `json:"resource,omitempty"` // what the lock guards
	Fence    uint64   `json:"fence,omitempty"`    // the fencing token; 0: the subject has none
	Token    string   `json:"token,omitempty"`    // the owner token in the lock's key, if the subject exposes it
	Until    int64    `json:"until,omitempty"`    // like At: when the holder last saw its lease valid
	Role     Role     `json:"role,omitempty"`     // acquire: what the client wants to be
	Permits  int      `json:"permits,omitempty"`  // acquire: how many permits of a semaphore it wants; 0: one
	From     uint64   `json:"from,omitempty"`     // acquire: the op that handed the lock over, or that was its writer
	Handed   bool     `json:"handed,omitempty"`   // release: the lock does not become free, but goes to an op From this one
	Since    int64    `json:"since,omitempty"`    // queued, owner, an instant fault: like At
	Owners   []string `json:"owners,omitempty"`   // owner: the tokens, if there are several
	Value    int64    `json:"value,omitempty"`    // of the guarded counter
	Fenced   bool     `json:"fenced,omitempty"`   // read, write, written: the resource compares fencing tokens
	OK       bool     `json:"ok,omitempty"`       // written: the resource accepted the write
	Node     string   `json:"node,omitempty"`     //
	Fault    string   `json:"fault,omitempty"`    // such as "kill", "pause", "cut" or "flush"; see package fault
	Begin    bool     `json:"begin,omitempty"`    // fault: it begins; otherwise it heals
	Untold   []string `json:"untold,omitempty"`   // lost, release: what the subject did not say of the lease: Validity, FencingTokens
	Error    string   `json:"error,omitempty"`    //
	Left     bool     `json:"left,omitempty"`     // failed, freed: the call never returned while the run waited for it
	Text     string   `json:"text,omitempty"`     //
	Run      *Run     `json:"run,omitempty"`      // start
}

// Tokens are the owners that an owner event has seen.
func (e *Event) Tokens() []string {
	if e.Token == "" {
		return e.Owners
	}
	return []string{e.Token}
}

// A Run is everything that is needed to repeat a run.
type Run struct {
	Version  int      `json:"version"` // of this format: 1
	Scenario string   `json:"scenario"`
	Subject  string   `json:"subject"`
	Fleet    string   `json:"fleet"`
	Nodes    []string `json:"nodes"` // their names
	Clients  int      `json:"clients"`
	Seed     uint64   `json:"seed"`
	Seconds  float64  `json:"seconds"`
	TTL      int64    `json:"ttl"`                // nanoseconds
	Orphan   int64    `json:"orphan,omitempty"`   // nanoseconds that a key may outlive its owner; 0: the TTL and a margin
	Quorum   int      `json:"quorum,omitempty"`   // on how many nodes a token owns the lock; 0: a majority
	Lock     LockKind `json:"lock,omitempty"`     // what kind of lock it is; "": a mutex
	Permits  int      `json:"permits,omitempty"`  // of a semaphore; 0: the lock is none
	Observed []string `json:"observed,omitempty"` // the locks whose keys the observers watch; none: all, as in a history from before this field
	Replay   string   `json:"replay,omitempty"`   // the command that repeats the run
	Proves   string   `json:"proves,omitempty"`   // what the scenario proves, in one sentence
}

// Version is the version of the format that this package writes.
const Version = 1

// Package history is the record of a chaos run: one JSON object a line, in the order of time. It knows
// nothing of any lock library, so that what judges a history shares no code with what made it.
package history

// A Kind is what a line of a history tells.
type Kind string

// The kinds of events there are.
const (
	Start   Kind = "start"   // the first line: what ran (Run)
	Acquire Kind = "acquire" // a client asks for the lock. Op is new and unique
	Granted Kind = "granted" // that Op got it: Fence, Token; the client believes from here on
	Refused Kind = "refused" // that Op did not: somebody holds it, or the wait was over
	Failed  Kind = "failed"  // that Op ended in an error (Error): it may have taken effect or not
	Lost    Kind = "lost"    // the holder of that Op noticed that its lease is lost; it stopped believing no later than Until
	Release Kind = "release" // the holder of that Op begins to release; it stopped believing no later than Until
	Freed   Kind = "freed"   // that release returned; Error is "" or what it said
	Read    Kind = "read"    // the holder of Op read Value from the guarded Resource
	Write   Kind = "write"   // the holder of Op sends Value, computed from what it read, to the Resource
	Written Kind = "written" // the Resource's answer to that write: OK, or refused by its fence; with Error: nobody knows
	Owner   Kind = "owner"   // an observer saw Token ("": free) in the lock's key on Node; told when it changed
	Fault   Kind = "fault"   // something is done to Node, or to Client, or heals: Fault, Begin. What is over at once, as a flush, is one line without Begin
	Note    Kind = "note"    // for people: Text
	End     Kind = "end"     // the last line
)

// An Event is one line. Which fields it has depends on its Kind; the others are left out.
type Event struct {
	At       int64  `json:"at"`                 // nanoseconds since the run began, by one monotonic clock; never decreasing
	Kind     Kind   `json:"kind"`               //
	Client   int    `json:"client,omitempty"`   // from 1
	Op       uint64 `json:"op,omitempty"`       // the acquire that this belongs to, from 1
	Resource string `json:"resource,omitempty"` // what the lock guards
	Fence    uint64 `json:"fence,omitempty"`    // 0: the subject has no fences
	Token    string `json:"token,omitempty"`    // what the subject writes into the lock's key, if it tells
	Until    int64  `json:"until,omitempty"`    // as At: when the holder last saw its lease valid
	Value    int64  `json:"value,omitempty"`    // of the guarded counter
	Fenced   bool   `json:"fenced,omitempty"`   // read, write, written: the resource compares fences
	OK       bool   `json:"ok,omitempty"`       // written: the resource took the write
	Node     string `json:"node,omitempty"`     //
	Fault    string `json:"fault,omitempty"`    // as "kill", "pause", "cut", "flush"; printable, see package fault
	Begin    bool   `json:"begin,omitempty"`    // fault: it begins. Else it heals
	Error    string `json:"error,omitempty"`    //
	Text     string `json:"text,omitempty"`     //
	Run      *Run   `json:"run,omitempty"`      // start
}

// A Run is what is to be known to repeat a run.
type Run struct {
	Version  int      `json:"version"` // of this format: 1
	Scenario string   `json:"scenario"`
	Subject  string   `json:"subject"`
	Fleet    string   `json:"fleet"`
	Nodes    []string `json:"nodes"` // their names
	Clients  int      `json:"clients"`
	Seed     uint64   `json:"seed"`
	Seconds  float64  `json:"seconds"`
	TTL      int64    `json:"ttl"`              // nanoseconds
	Orphan   int64    `json:"orphan,omitempty"` // nanoseconds that a key may outlive its owner; 0: the TTL and a margin
	Quorum   int      `json:"quorum,omitempty"` // on how many nodes a token owns the lock; 0: on most of them
	Replay   string   `json:"replay,omitempty"` // the command that runs it again
	Proves   string   `json:"proves,omitempty"` // the sentence
}

// Version is the version of the format that this package writes.
const Version = 1

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/quorumlock/redlock"
)

// A lockReport is what inspect prints.
type lockReport struct {
	Key   string           `json:"key"`
	State string           `json:"state"` // held, free, partial or unknown
	Held  bool             `json:"held"`
	Nodes []nodeLockReport `json:"nodes"`
	// Sharers is who has it on a quorum, if several share it: readers, or holders of permits.
	Sharers []sharerReport `json:"sharers,omitempty"`
	Votes   int            `json:"votes"`
	Quorum  int            `json:"quorum"`
	holding
	jsonFailure

	blocked bool // partial, and what never expires is why
}

type sharerReport struct {
	Token           string `json:"token"`
	Owner           string `json:"owner,omitempty"`
	Label           string `json:"label,omitempty"`
	Slots           []int  `json:"slots,omitempty"`   // which permits it has; none: it is a reader
	Permits         int    `json:"permits,omitempty"` // of how many
	RemainingMillis int64  `json:"remaining_millis"`
}

func (s sharerReport) String() string {
	who, left := holding{Owner: s.Owner, Label: s.Label, Token: s.Token}.holder(), time.Duration(s.RemainingMillis)*time.Millisecond
	if s.Permits == 0 {
		return fmt.Sprintf("%s reads, for %v unless it is renewed", who, left)
	}
	return fmt.Sprintf("%s has %s (slot %s of %d), for %v unless it is renewed", who, plural(len(s.Slots), "permit"),
		strings.Trim(fmt.Sprint(s.Slots), "[]"), s.Permits, left)
}

type nodeLockReport struct {
	Node     string `json:"node"`
	Votes    bool   `json:"votes"`
	Held     bool   `json:"held"`
	Reserved bool   `json:"reserved,omitempty"`
	Problem  string `json:"problem,omitempty"`
	holding
}

type holding struct {
	Owner           string `json:"owner,omitempty"` // Config.Owner
	Label           string `json:"label,omitempty"` // Lock.WithOwner
	Token           string `json:"token,omitempty"`
	RemainingMillis int64  `json:"remaining_millis"` // -1: it never expires
	Fence           uint64 `json:"fence"`
	Foreign         bool   `json:"foreign,omitempty"` // it is not a lock of this library, or never expires
}

func hold(held bool, token string, sharers []redlock.Sharer, holder redlock.Holder, fence uint64) holding {
	h := holding{Owner: holder.Owner, Label: holder.Label, Token: token, RemainingMillis: holder.Remaining.Milliseconds(), Fence: fence}
	h.Foreign = held && len(sharers) == 0 && (!isToken(token) || holder.Remaining < 0)
	if holder.Remaining < 0 {
		h.RemainingMillis = -1
	}
	return h
}

// holder returns the owner in readable form. A key that is not a string has none.
func (h holding) holder() string {
	switch {
	case h.Token == "":
		return "something that is not a lock"
	case h.Owner == "":
		if h.Foreign {
			return printable(h.Token) + foreign(h.Token)
		}
		return printable(h.Token)
	}
	return printable(redlock.Holder{Owner: h.Owner, Label: h.Label}.String())
}

// foreign says that another library or program wrote the string; "": this one did, or there is none.
func foreign(value string) string {
	if value == "" || isToken(value) {
		return ""
	}
	return " (not a lock of this library)"
}

// until says for how long the owner has it.
func (h holding) until() string {
	if h.RemainingMillis < 0 {
		return "without expiry"
	}
	return "for " + h.remaining() + " unless it is renewed"
}

func (h holding) remaining() string {
	if h.RemainingMillis < 0 {
		return "for ever"
	}
	return (time.Duration(h.RemainingMillis) * time.Millisecond).String()
}

func reportOn(s *redlock.State) lockReport {
	holder, _ := s.Holder()
	l := lockReport{Key: s.Name, Held: s.Held, Votes: s.Votes, Quorum: s.Quorum, holding: hold(s.Held, s.Token, s.Sharers, holder, s.Fence)}
	free := 0
	for _, n := range s.Nodes {
		holder, _ := n.Holder()
		r := nodeLockReport{Node: n.Node, Votes: n.Err == nil, Held: n.Held, Reserved: n.Reserved, holding: hold(n.Held, n.Token, n.Sharers, holder, n.Fence)}
		if n.Err != nil {
			r.Problem, _ = problemOf(n.Err)
		} else if !n.Held {
			free++
		}
		l.Nodes = append(l.Nodes, r)
	}
	for _, who := range s.Sharers {
		h := who.Holder()
		l.Sharers = append(l.Sharers, sharerReport{who.Token, h.Owner, h.Label, who.Slots, who.Permits, who.Remaining.Milliseconds()})
	}
	switch {
	case s.Votes < s.Quorum:
		l.State = "unknown"
	case s.Held:
		l.State = "held"
	case free >= s.Quorum:
		l.State = "free"
	default:
		l.State = "partial"
		l.blocked = noLockIn(s) != nil
	}
	return l
}

// having lists on how many nodes each owner has the lock, the owner with the most nodes first.
func (l lockReport) having() string {
	on, names := map[string]int{}, map[string]string{}
	for _, n := range l.Nodes {
		if n.Held {
			on[n.Token]++
			names[n.Token] = n.holder()
		}
	}
	owners := slices.SortedFunc(maps.Keys(on), func(a, b string) int {
		return cmp.Or(cmp.Compare(on[b], on[a]), cmp.Compare(a, b))
	})
	for i, owner := range owners {
		owners[i] = fmt.Sprintf("%s has it on %d of %s", names[owner], on[owner], plural(len(l.Nodes), "node"))
	}
	return strings.Join(owners, ", ")
}

// staysForEver reports whether a node has a key that never expires, so no lock.
func (l lockReport) staysForEver() bool {
	return slices.ContainsFunc(l.Nodes, func(n nodeLockReport) bool { return n.Held && n.RemainingMillis < 0 })
}

// permits is the numbers of permits that the holders give it, each once, in order.
func (l lockReport) permits() (numbers []int) {
	for _, s := range l.Sharers {
		if s.Permits > 0 {
			numbers = append(numbers, s.Permits)
		}
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

func (l lockReport) print(out io.Writer) error {
	key, all := printable(l.Key), plural(len(l.Nodes), "node")
	having := l.having()
	switch l.State {
	case "unknown":
		fmt.Fprintf(out, "%s: unknown: too few nodes vote (%d of %s, and it takes %d)", key, l.Votes, all, l.Quorum)
		if having != "" {
			fmt.Fprintf(out, "; %s", having)
		}
		fmt.Fprintln(out)
	case "held":
		if len(l.Sharers) > 0 {
			fmt.Fprintf(out, "%s is shared by %d on a quorum (which is %d of %s); largest fencing token %d\n", key, len(l.Sharers), l.Quorum, all, l.Fence)
			for _, s := range l.Sharers {
				fmt.Fprintf(out, "  %v\n", s)
			}
			if numbers := l.permits(); len(numbers) > 1 {
				fmt.Fprintf(out, "its holders give it different numbers of permits: %s; so up to %d can hold it at a time; give the same number everywhere\n",
					strings.ReplaceAll(strings.Trim(fmt.Sprint(numbers), "[]"), " ", ", "), slices.Max(numbers))
			}
			break
		}
		on := 0
		for _, n := range l.Nodes {
			if n.Held && n.Token == l.Token {
				on++
			}
		}
		fmt.Fprintf(out, "%s is held by %s on %d of %s, %s; largest fencing token %d\n",
			key, l.holder(), on, all, l.until(), l.Fence)
	case "partial":
		if l.blocked {
			fmt.Fprintf(out, "%s cannot be acquired, and nobody holds it: %s, which never expires, and the other nodes that vote are no quorum (which is %d); largest fencing token %d\n",
				key, having, l.Quorum, l.Fence)
			break
		}
		fmt.Fprintf(out, "%s is being taken or released, or the rest of it expires: %s, and it takes %d; largest fencing token %d\n",
			key, having, l.Quorum, l.Fence)
	default:
		fmt.Fprintf(out, "%s is free: nobody has it on a quorum (which is %d of %s)", key, l.Quorum, all)
		switch {
		case l.staysForEver():
			fmt.Fprintf(out, "; %s; what never expires is in the way if other nodes are away", having)
		case having != "":
			fmt.Fprintf(out, "; %s, left by a try that failed or has just ended", having)
		}
		fmt.Fprintf(out, "; largest fencing token %d\n", l.Fence)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tOWNER\tLEFT\tFENCING TOKEN\tVOTES")
	for _, n := range l.Nodes {
		votes := "yes"
		if !n.Votes {
			votes = "no: " + n.Problem
		}
		owner, left, fence := "–", "–", strconv.FormatUint(n.Fence, 10)
		switch {
		case n.Held:
			owner, left = n.holder(), n.remaining()
		case n.Reserved:
			owner = "reserved for a waiter"
		case !n.Votes && n.Fence == 0:
			owner, fence = "?", "?"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", printable(n.Node), owner, left, fence, votes)
	}
	return table.Flush()
}

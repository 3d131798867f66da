package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/redlock"
)

// What redlock top shows: frames of a terminal, or lines.

// A topSample is what is shown.
type topSample struct {
	at            time.Time
	nodes, votes  int
	quorum        int
	interval      time.Duration
	tracks        []*track
	held, waiters int
	more          bool  // there is no room for all locks
	scanning      bool  // the locks were found by SCAN
	searching     bool  // not every key was looked at yet
	refused       error // why a node that votes refuses to say what it has
}

// topColumns are the columns after the name. The name and the holder share what is left: 18 and 19 of 80 columns.
var topColumns = []struct {
	title string
	width int
}{{"HOLDER", 0}, {"HELD", 7}, {"LEFT", 6}, {"WAITERS", 7}, {"WAITING", 7}, {"BUSY", 4}, {"TURNS", 5}}

const (
	leastName   = 12
	leastWidth  = 80
	leastHeight = 6
)

// frame is the lines of a screen: no more than height, none wider than width.
func (s *topSample) frame(width, height int) []string {
	width, height = max(width, 20), max(height, leastHeight)
	left := width
	for _, c := range topColumns {
		left -= c.width + 1
	}
	name, holder := max(left/2, leastName), max(left-left/2, leastName)
	says := fmt.Sprintf("%d of %s %s", s.votes, plural(s.nodes, "node"), votes(s.votes, s.nodes))
	head := fmt.Sprintf("redlock top - %s, %s held, %s", says, plural(s.held, "lock"), plural(s.waiters, "waiter"))
	if s.votes < s.quorum {
		head = "redlock top - NO QUORUM: " + says
	}
	lines := []string{beside(head, s.at.Format("15:04:05"), width), ""}
	row := pad("LOCK", name)
	for i, c := range topColumns {
		row += " " + inColumn(i, c.title, holder)
	}
	lines = append(lines, cut(row, width))
	room := height - len(lines) - 2
	for i, t := range s.tracks {
		if i == room-1 && len(s.tracks) > room {
			lines = append(lines, fmt.Sprintf("… and %d more", len(s.tracks)-i))
			break
		}
		row := pad(cut(printable(t.name), name), name)
		for j, cell := range t.cells(s.at, s.votes >= s.quorum) {
			row += " " + inColumn(j, cell, holder)
		}
		lines = append(lines, cut(row, width))
	}
	switch {
	case len(s.tracks) > 0 || s.votes < s.quorum: // which is not known
	case s.searching:
		lines = append(lines, "no lock was found yet")
	default:
		lines = append(lines, "no lock is held")
	}
	for len(lines) < height-2 {
		lines = append(lines, "")
	}
	return append(lines, cut(s.hint(), width), cut("BUSY: time with a waiter  TURNS: holders seen  +: or longer    Ctrl-C ends it", width))
}

// inColumn pads a cell. The first column is the holder.
func inColumn(column int, cell string, holder int) string {
	if column == 0 {
		return pad(cut(cell, holder), holder)
	}
	return padLeft(cell, topColumns[column].width)
}

// tooFew is the error of a sample with too few votes.
func (s *topSample) tooFew() error {
	if s.refused != nil {
		return fmt.Errorf("too few nodes answer: %s", withRemedy(s.refused.Error()))
	}
	return errTooFewVotes
}

// hint is about the whole, if there is anything to say.
func (s *topSample) hint() string {
	switch {
	case s.votes < s.quorum && s.refused != nil:
		return "Who holds a lock is not known: " + printable(s.refused.Error())
	case s.votes < s.quorum:
		return fmt.Sprintf("It takes %s. Who holds a lock is not known: redlock doctor says why.", plural(s.quorum, "vote"))
	case s.votes < s.nodes:
		return fmt.Sprintf("%s without a vote: redlock doctor says why.", plural(s.nodes-s.votes, "node"))
	case s.more:
		return "There are more locks than --limit; give --prefix, names, or a larger --limit."
	case s.searching:
		return "Not every key was looked at yet: there may be more locks."
	case s.scanning:
		return fmt.Sprintf("A lock that is held for less than %v is mostly missed.", s.interval)
	}
	return ""
}

// cells are the columns after the name.
func (t *track) cells(now time.Time, known bool) []string {
	holder, held, left := "-", "-", "-"
	switch {
	case !known:
		holder = "?"
	case t.unread:
		holder = "no-right"
	case t.owner != "":
		holder, held, left = t.holder(), duration(t.held(now)), duration(t.left)
		switch {
		case t.before:
			held += "+"
		case t.since.Equal(now): // 0ms would be said of one that has it for almost an interval
			held = "new"
		}
	case t.foreign:
		holder = "no-lock"
	case t.partial:
		holder = "partial"
	}
	waiting := "-"
	if t.waiters > 0 {
		waiting = duration(t.waits)
	}
	return []string{holder, held, left, strconv.Itoa(t.waiters), waiting, strconv.Itoa(t.contention()) + "%", strconv.Itoa(t.owners)}
}

// holder is who holds the lock: host, process and label, or the beginning of the token.
func (t *track) holder() string {
	switch {
	case t.sharers > 0 && t.owner == "readers":
		return plural(t.sharers, "reader")
	case t.sharers > 0:
		if t.sharers == 1 {
			return "1 holder of permits"
		}
		return strconv.Itoa(t.sharers) + " holders of permits"
	}
	if h := holderOf(t.owner); h.Owner != "" {
		return h.String()
	}
	return shortToken(t.owner)
}

// holderOf reads an owner token.
func holderOf(token string) redlock.Holder {
	h, _ := (&redlock.NodeState{Held: true, Token: token}).Holder()
	return h
}

// shortToken shortens an owner token, so that it cannot be used to release the lock.
func shortToken(token string) string { return token[:min(8, len(token))] }

// lines is the same for a pipe: one line for all, and one for each lock.
func (s *topSample) lines() (lines []string) {
	at := s.at.UTC().Format("2006-01-02T15:04:05.000Z")
	lines = []string{fmt.Sprintf("%s votes=%d/%d held=%d waiters=%d", at, s.votes, s.nodes, s.held, s.waiters)}
	if s.more || s.searching {
		lines[0] += " more=true"
	}
	for _, t := range s.tracks {
		line := at + " lock=" + quoted(t.name)
		for i, cell := range t.cells(s.at, s.votes >= s.quorum) {
			line += " " + strings.ToLower(topColumns[i].title) + "=" + quoted(cell)
		}
		lines = append(lines, line)
	}
	return lines
}

// quoted quotes a name that is not one plain word.
func quoted(name string) string {
	if strings.ContainsAny(name, " \"=\\") || printable(name) != name {
		return strconv.Quote(name)
	}
	return name
}

// A topReport is what --json prints for each sample.
type topReport struct {
	Time    time.Time `json:"time"`
	Votes   int       `json:"votes"`
	Nodes   int       `json:"nodes"`
	Quorum  int       `json:"quorum"`
	Held    int       `json:"held"`
	Waiters int       `json:"waiters"`
	More    bool      `json:"more,omitempty"` // there may be more locks: more than --limit, or not every key was looked at yet
	Locks   []topLock `json:"locks"`
	jsonFailure
}

type topLock struct {
	Lock          string `json:"lock"`
	State         string `json:"state"`             // held, free, partial, foreign or unknown
	Token         string `json:"token,omitempty"`   // the beginning of the owner token
	Sharers       int    `json:"sharers,omitempty"` // how many share it: readers, or holders of permits
	Owner         string `json:"owner,omitempty"`   // Config.Owner
	Label         string `json:"label,omitempty"`   // Lock.WithOwner
	HeldMillis    int64  `json:"held_millis"`
	Longer        bool   `json:"longer,omitempty"` // it was held before top began
	LeftMillis    int64  `json:"left_millis"`
	Waiters       int    `json:"waiters"`
	WaitingMillis int64  `json:"waiting_millis"`
	BusyPercent   int    `json:"busy_percent"`
	Turns         int    `json:"turns"`
}

func (s *topSample) report() topReport {
	r := topReport{Time: s.at.UTC(), Votes: s.votes, Nodes: s.nodes, Quorum: s.quorum, Held: s.held, Waiters: s.waiters,
		More: s.more || s.searching, Locks: []topLock{}}
	for _, t := range s.tracks {
		l := topLock{Lock: t.name, State: t.state(s.votes >= s.quorum), LeftMillis: t.left.Milliseconds(), HeldMillis: t.held(s.at).Milliseconds(),
			Longer: t.before && t.owner != "", Waiters: t.waiters, WaitingMillis: t.waits.Milliseconds(),
			BusyPercent: t.contention(), Turns: t.owners, Sharers: t.sharers}
		if h := holderOf(t.owner); t.owner != "" && t.sharers == 0 {
			l.Token, l.Owner, l.Label = shortToken(t.owner), h.Owner, h.Label
		}
		r.Locks = append(r.Locks, l)
	}
	return r
}

func (t *track) state(known bool) string {
	switch {
	case !known || t.unread:
		return "unknown"
	case t.owner != "":
		return "held"
	case t.foreign:
		return "foreign"
	case t.partial:
		return "partial"
	}
	return "free"
}

// duration writes a time in at most seven columns.
func duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 100*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/quorumlock/redlock/chaos/check"
)

// Vertical sizes in pixels. Horizontal positions are percentages of the run, so that zooming does not stretch letters.
const (
	axisHeight   = 26
	markHeight   = 22
	maxMarkRows  = 3
	faultHeight  = 18
	maxFaultRows = 5
	ownedHeight  = 14
	clientHeight = 22
	lanePadding  = 3
	letterWidth  = 6.4
)

// A shape is a rectangle, a text or a line.
type shape struct {
	X, W       string // in percent
	Y, H       int
	Class      string
	Title      string
	Text       string
	Href, ID   string
	Opacity    string
	At         int64
	Anchor     string
	TextX      string
	Instant    bool
	Violations []int
}

// A lane is a node or a client.
type lane struct {
	Name, Label, Kind, Note string
	Y, H                    int
	Faults, Shapes          []shape
}

// A timeline is everything that the template draws.
type timeline struct {
	Lanes                  []lane
	Height, Top            int
	Ticks, Marks, Bands    []shape
	FaultLines, Lines      []shape
	EndNanos               int64
	MaxZoom                int
	Resources              []string
	Whole, Merged, HasOwns bool
	Label                  string
}

func newTimeline(r *Run, prefix string) *timeline {
	rec := read(r)
	t := &timeline{EndNanos: rec.end, MaxZoom: int(fullZoom(rec.end)), Resources: rec.resources, Whole: rec.whole}
	var hot []int64
	for _, f := range r.Result.Faults {
		hot = append(hot, nanos(f.Begin))
		if f.Heal != nil {
			hot = append(hot, nanos(*f.Heal))
		}
	}
	for _, v := range r.Result.Violations {
		hot = append(hot, int64(v.At), int64(v.At+v.For))
	}
	drawings := rec.draw(hot)
	t.Top = axisHeight + t.marks(r.Result.Violations, prefix)
	t.Height = t.Top
	for _, node := range rec.nodes {
		t.nodeLane(rec, r, node)
	}
	if slices.ContainsFunc(r.Result.Faults, func(f check.FaultResult) bool { return f.Node == "" && f.Client == 0 }) {
		t.lane(lane{Name: "all", Label: "all", Kind: "node"}, rec, r.Result.Faults, func(f *check.FaultResult) bool {
			return f.Node == "" && f.Client == 0
		})
	}
	for _, client := range slices.Sorted(maps.Keys(rec.clients)) {
		t.clientLane(rec, r, client, drawings[client])
	}
	t.ticks()
	t.bands(r.Result.Violations)
	t.faultLines(r.Result.Faults)
	t.Label = fmt.Sprintf("Timeline of %s: %s, %s, %s, %s", lasting(rec.end), count(len(rec.nodes), "node"),
		count(len(rec.clients), "client"), count(len(r.Result.Faults), "fault"), count(len(r.Result.Violations), "listed violation"))
	return t
}

// percent returns a position or width as a percentage of the run. It has only digits, so it is safe in an attribute.
func (t *timeline) percent(nanos int64) string {
	return strconv.FormatFloat(math.Round(t.share(nanos)*1e7)/1e5, 'f', -1, 64) + "%"
}

func (t *timeline) share(nanos int64) float64 { return float64(nanos) / float64(t.EndNanos) }

// lane adds a lane with its faults, and returns it.
func (t *timeline) lane(l lane, rec *record, faults []check.FaultResult, mine func(*check.FaultResult) bool) *lane {
	l.Y = t.Height
	top := l.Y + lanePadding
	if l.Kind == "client" {
		top = l.Y + clientHeight
	}
	shapes, rowCount := t.pack(faults, mine, top, rec.end)
	l.Faults = shapes
	l.H = top - l.Y + rowCount*faultHeight + lanePadding
	if l.Kind == "client" && rowCount == 0 {
		l.H = clientHeight
	}
	l.Note = count(len(shapes), "fault")
	if l.Kind == "node" {
		l.H = max(l.H, clientHeight)
	}
	t.Height += l.H
	t.Lanes = append(t.Lanes, l)
	return &t.Lanes[len(t.Lanes)-1]
}

// pack places the faults of a lane in as few rows as their labels allow.
func (t *timeline) pack(faults []check.FaultResult, mine func(*check.FaultResult) bool, top int, end int64) ([]shape, int) {
	var taken []float64 // where each row is free again, in pixels at zoom 1
	var shapes []shape
	for i := range faults {
		f := &faults[i]
		if !mine(f) {
			continue
		}
		s, from, to := t.faultShape(f, end)
		row := slices.IndexFunc(taken, func(free float64) bool { return free <= from })
		switch {
		case row >= 0:
			taken[row] = to
		case len(taken) < maxFaultRows:
			row = len(taken)
			taken = append(taken, to)
		default: // no space for a label: the bar goes where it hides the least, and has only a tooltip
			row = slices.Index(taken, slices.Min(taken))
			taken[row], s.Text = max(taken[row], to), ""
		}
		s.Y, s.H = top+row*faultHeight, faultHeight-3
		shapes = append(shapes, s)
	}
	return shapes, len(taken)
}

// faultShape returns the bar of a fault, and where the bar with its label begins and ends, in pixels at zoom 1.
func (t *timeline) faultShape(f *check.FaultResult, end int64) (shape, float64, float64) {
	begin, heal := nanos(f.Begin), end
	title := fmt.Sprintf("%s on %s, from %s", faultName(f), faultPlace(f), seconds(begin))
	s := shape{Class: "fault", Text: faultName(f), X: t.percent(begin), TextX: t.percent(begin), At: begin}
	switch {
	case f.Heal == nil:
		s.Class, title = "fault open", title+", never healed"
	case *f.Heal > f.Begin:
		heal = nanos(*f.Heal)
		title += fmt.Sprintf(" to %s (%s)", seconds(heal), lasting(heal-begin))
	default:
		heal, s.Instant = begin, true
		title = fmt.Sprintf("%s on %s, at %s", faultName(f), faultPlace(f), seconds(begin))
	}
	s.W, s.Title = t.percent(heal-begin), plain(title)
	from, to := t.share(begin)*baseWidth, t.share(heal)*baseWidth
	label := float64(len([]rune(s.Text)))*letterWidth + 14
	if from+label > baseWidth { // it would be cut off
		s.Anchor, s.TextX = "end", t.percent(heal)
		return s, min(from, to-label), to + 4
	}
	return s, from, max(to, from+label) + 4
}

func (t *timeline) nodeLane(rec *record, r *Run, node string) {
	l := t.lane(lane{Name: node, Label: plain(node), Kind: "node"}, rec, r.Result.Faults, func(f *check.FaultResult) bool {
		return f.Node == node
	})
	ops := map[string]*lease{}
	for _, leases := range rec.clients {
		for _, x := range leases {
			if len(x.broken) > 0 && x.token != "" {
				ops[x.token] = x
			}
		}
	}
	if len(ops) == 0 || len(rec.owned) == 0 {
		return
	}
	for _, o := range rec.owned {
		if o.node != node {
			continue
		}
		x := ops[o.token]
		s := shape{
			X: t.percent(o.from), W: t.percent(o.to - o.from), Y: l.Y + l.H - 2, H: ownedHeight - 1,
			Class: "owned " + hue(o.resource), Violations: x.broken,
			Title: fmt.Sprintf("the key on %s belonged to op %d, client %d, from %s to %s", plain(node), x.op, x.client,
				seconds(o.from), seconds(o.to)),
		}
		if text := fmt.Sprintf("client %d", x.client); t.share(o.to-o.from)*baseWidth > float64(len(text))*letterWidth+6 {
			s.Text = text
		}
		l.Shapes = append(l.Shapes, s)
	}
	if len(l.Shapes) == 0 {
		return
	}
	t.HasOwns = true
	l.H += ownedHeight
	t.Height += ownedHeight
}

// hue is the class for the colour of a resource.
func hue(resource int) string { return "r" + strconv.Itoa(min(resource, 3)) }

func (t *timeline) clientLane(rec *record, r *Run, client int, d drawing) {
	name := strconv.Itoa(client)
	l := t.lane(lane{Name: "client-" + name, Label: "client " + name, Kind: "client"}, rec, r.Result.Faults,
		func(f *check.FaultResult) bool { return f.Node == "" && f.Client == client && client != 0 })
	middle := l.Y + clientHeight/2
	for i := range d.blocks {
		b := &d.blocks[i]
		l.Shapes = append(l.Shapes, shape{
			X: t.percent(b.from), W: t.percent(b.to - b.from), Y: middle - 6, H: 12, Class: "block", Title: b.title(),
			Opacity: strconv.FormatFloat(0.15+0.75*b.density(), 'f', 2, 64),
		})
		t.Merged = true
	}
	granted := 0
	for _, x := range d.leases {
		l.Shapes = append(l.Shapes, t.leaseShapes(rec, x, middle)...)
	}
	for _, x := range rec.clients[client] {
		if x.granted {
			granted++
		}
	}
	// Shapes of violations come last, so that nothing covers them.
	slices.SortStableFunc(l.Shapes, func(a, b shape) int { return cmp.Compare(len(a.Violations), len(b.Violations)) })
	l.Note = fmt.Sprintf("%s, %d granted, %s", count(len(rec.clients[client]), "acquire"), granted, l.Note)
}

// leaseShapes returns the thin part of a lease and the thick one.
func (t *timeline) leaseShapes(rec *record, x *lease, middle int) []shape {
	waited := x.answered
	if waited < 0 {
		waited = rec.end
	}
	class := []string{"wait", hue(x.resource)}
	switch {
	case x.granted:
	case x.answered < 0:
		class[0] = "wait unanswered"
	case x.how == "refused":
		class[0] = "wait refused"
	default:
		class[0] = "wait failed"
	}
	title := x.title(rec.resources, rec.end)
	shapes := []shape{{
		X: t.percent(x.asked), W: t.percent(waited - x.asked), Y: middle - 1, H: 2, Class: strings.Join(class, " "),
		Title: title, Violations: x.broken,
	}}
	if !x.granted {
		return shapes
	}
	held := shape{
		X: t.percent(x.answered), W: t.percent(max(0, x.until-x.answered)), Y: middle - 6, H: 12, Class: "held " + hue(x.resource),
		Title: title, Violations: x.broken,
	}
	if len(x.broken) > 0 {
		held.Class += " broken"
	}
	return append(shapes, held)
}

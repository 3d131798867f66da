package report

import (
	"fmt"
	"maps"
	"slices"
	"sort"
)

const (
	// baseWidth is how wide the timeline is reckoned to be at zoom 1, in pixels.
	baseWidth = 1100
	// maxZoom is the most that the timeline can be stretched.
	maxZoom = 512
	// fullPixel is what a pixel shows at full zoom, in nanoseconds, unless maxZoom comes first.
	fullPixel = 100_000
	// maxShapes is how many leases and blocks are drawn, beside those that are kept.
	maxShapes = 4000
	// maxKept is how many leases are kept for being next to something, beside those of violations.
	maxKept = 2000
	// blockWidth is how wide a block is at least, in widths of the widest lease that goes into one.
	blockWidth = 8
)

// A block stands for several acquires of a client that are too short to be drawn.
type block struct {
	client           int
	from, to, held   int64
	acquires, grants int
}

func (b *block) title() string {
	return fmt.Sprintf("client %d, %s to %s: %s, %d granted, held for %s (%.0f %% of the time)\ndrawn as one: they are too short",
		b.client, seconds(b.from), seconds(b.to), count(b.acquires, "acquire"), b.grants, lasting(b.held), 100*b.density())
}

func (b *block) density() float64 {
	if b.to <= b.from {
		return 1
	}
	return min(1, float64(b.held)/float64(b.to-b.from))
}

// A drawing is what is left of the leases: each in one of the two lists.
type drawing struct {
	leases []*lease
	blocks []block
}

// fullZoom is how far a run of that length can be stretched.
func fullZoom(end int64) float64 {
	return float64(min(maxZoom, max(8, end/baseWidth/fullPixel)))
}

// draw decides what is drawn one by one. hot are the times of faults and violations.
func (r *record) draw(hot []int64) map[int]drawing {
	kept := r.kept(hot)
	narrow := max(1, int64(float64(r.end)/baseWidth/fullZoom(r.end)/2))
	for {
		all, shapes := map[int]drawing{}, 0
		for client, leases := range r.clients {
			d := thin(leases, kept, narrow, r.end)
			all[client] = d
			shapes += len(d.leases) + len(d.blocks)
		}
		if shapes-len(kept) <= maxShapes || narrow > r.end {
			return all
		}
		narrow *= 2
	}
}

// thin draws together what is narrower than narrow and not kept.
func thin(leases []*lease, kept map[*lease]bool, narrow, runEnd int64) drawing {
	var d drawing
	bin := narrow * blockWidth
	for _, l := range leases {
		end := l.end(runEnd)
		if kept[l] || end-l.asked >= narrow {
			d.leases = append(d.leases, l)
			continue
		}
		last := len(d.blocks) - 1
		if last < 0 || d.blocks[last].from/bin != l.asked/bin {
			d.blocks = append(d.blocks, block{client: l.client, from: l.asked, to: end})
			last++
		}
		b := &d.blocks[last]
		b.to = max(b.to, end)
		b.acquires++
		if l.granted {
			b.grants++
			b.held += max(0, l.until-l.answered)
		}
	}
	return d
}

// kept are the leases that are drawn one by one whatever their width: those of violations, and for each client
// a few before and after each hot time; the fewer, the more these are.
func (r *record) kept(hot []int64) map[*lease]bool {
	broken := map[*lease]bool{}
	for _, leases := range r.clients {
		for _, l := range leases {
			if len(l.broken) > 0 {
				broken[l] = true
			}
		}
	}
	slices.Sort(hot)
	hot = slices.Compact(hot)
	for around := 3; around > 0; around-- {
		kept := maps.Clone(broken)
		for _, leases := range r.clients {
			for _, t := range hot {
				after := sort.Search(len(leases), func(i int) bool { return leases[i].asked > t })
				for _, l := range leases[max(0, after-around):min(len(leases), after+around)] {
					kept[l] = true
				}
				if len(kept)-len(broken) > maxKept {
					break
				}
			}
		}
		if len(kept)-len(broken) <= maxKept {
			return kept
		}
	}
	return broken
}

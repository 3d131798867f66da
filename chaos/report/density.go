package report

import (
	"fmt"
	"maps"
	"slices"
	"sort"
)

const (
	// baseWidth is the assumed width of the timeline at zoom 1, in pixels.
	baseWidth = 1100
	// maxZoom is the maximum zoom of the timeline.
	maxZoom = 512
	// fullPixel is the time per pixel at full zoom in nanoseconds, unless maxZoom is reached before.
	fullPixel = 100_000
	// maxShapes is how many leases and blocks are drawn, in addition to the kept leases.
	maxShapes = 4000
	// maxKept is how many leases are kept because they are next to a fault or violation, in addition to those that are
	// part of a violation.
	maxKept = 2000
	// blockWidth is the minimum width of a block, relative to the widest lease in a block.
	blockWidth = 8
)

// A block stands for several acquires of a client that are too short to be drawn.
type block struct {
	client           int
	from, to, held   int64
	acquires, grants int
}

func (b *block) title() string {
	return fmt.Sprintf("client %d, %s to %s: %s, %d granted, held for %s (%.0f %% of the time)\ndrawn as one block, because they are too short",
		b.client, seconds(b.from), seconds(b.to), count(b.acquires, "acquire"), b.grants, lasting(b.held), 100*b.density())
}

func (b *block) density() float64 {
	if b.to <= b.from {
		return 1
	}
	return min(1, float64(b.held)/float64(b.to-b.from))
}

// A drawing has each lease of a client in one of two lists.
type drawing struct {
	leases []*lease
	blocks []block
}

// fullZoom is the maximum zoom for a run of this length.
func fullZoom(end int64) float64 {
	return float64(min(maxZoom, max(8, end/baseWidth/fullPixel)))
}

// draw decides which leases are drawn one by one. hot are the times of faults and violations.
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

// thin merges leases that are narrower than narrow and not kept.
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

// kept returns the leases that are always drawn one by one: those of violations, and for each client up to three before
// and after each hot time. If there are too many of them, it keeps fewer.
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

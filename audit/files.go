package audit

import (
	"cmp"
	"maps"
	"slices"
)

// merged are the processes of all journals, each once. A process may have lines in several files, as where they were rotated,
// and the same lines in two of them.
func merged(journals []*Journal) (all []*process) {
	parts := map[string][]*process{}
	var ids []string
	for _, j := range journals {
		for _, p := range j.processes {
			if parts[p.id] == nil {
				ids = append(ids, p.id)
			}
			parts[p.id] = append(parts[p.id], p)
		}
	}
	for _, id := range ids {
		of := parts[id]
		whole := *of[0] // a Journal can be judged again
		all = append(all, &whole)
		if whole.name = cmp.Or(whole.name, id); len(of) == 1 {
			continue
		}
		slices.SortStableFunc(of, func(a, b *process) int { return cmp.Compare(a.first.at, b.first.at) })
		whole = *of[0]
		whole.leases, whole.missed = map[string]*lease{}, map[moment]uint64{}
		for _, part := range of {
			whole.take(part)
		}
		whole.name = cmp.Or(whole.name, id)
	}
	return all
}

// take takes what a file has of the process, in the order of their first events.
func (p *process) take(part *process) {
	p.name = cmp.Or(p.name, part.name)
	maps.Copy(p.missed, part.missed)
	p.look(part.first)
	p.last = part.last
	p.jump = max(p.jump, part.jump)
	for id, more := range part.leases {
		l := p.leases[id]
		if l == nil {
			same := *more
			p.leases[id] = &same
			continue
		}
		if l.names == nil {
			l.names, l.fence, l.reader, l.permits, l.all = more.names, more.fence, more.reader, more.permits, more.all
			l.asked, l.from, l.late = more.asked, more.from, more.late
		}
		for _, k := range []struct {
			learn func(*known, moment)
			of    *known
			more  known
		}{
			{(*known).latest, &l.valid, more.valid}, {(*known).latest, &l.wrote, more.wrote}, {(*known).latest, &l.until, more.until},
			{(*known).soonest, &l.reads, more.reads}, {(*known).soonest, &l.end, more.end},
		} {
			if k.more.ok {
				k.learn(k.of, k.more.moment)
			}
		}
		if len(more.how) > len(l.how) { // it says why
			l.how = more.how
		}
	}
}

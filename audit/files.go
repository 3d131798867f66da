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
		slices.SortStableFunc(of, func(a, b *process) int { return cmp.Compare(a.first.at, b.first.at) })
		whole := *of[0] // a Journal can be judged again
		if len(of) > 1 {
			whole.leases, whole.missed = map[string]*lease{}, map[moment]uint64{}
			for _, part := range of {
				whole.take(part)
			}
		}
		whole.name = cmp.Or(whole.name, id)
		all = append(all, &whole)
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
			l.grant = more.grant
		}
		l.valid.latest(more.valid)
		l.wrote.latest(more.wrote)
		l.reads.soonest(more.reads)
		l.until.latest(more.until)
		l.end.soonest(more.end)
		l.ended(more.how)
	}
}

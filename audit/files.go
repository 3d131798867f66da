package audit

import (
	"cmp"
	"slices"
)

// merged are the processes of all journals, each once. A process may have lines in several files, as where they were rotated,
// and the same lines in two of them.
func merged(journals []*Journal) (all []*process) {
	at := map[string]int{}
	parts := map[string][]*process{}
	for _, j := range journals {
		for _, p := range j.processes {
			if _, known := at[p.id]; !known {
				at[p.id] = len(all)
				all = append(all, p)
			}
			parts[p.id] = append(parts[p.id], p)
		}
	}
	for id, of := range parts {
		if len(of) == 1 {
			continue
		}
		slices.SortStableFunc(of, func(a, b *process) int { return cmp.Compare(a.first, b.first) })
		whole := of[0].clone()
		for _, later := range of[1:] {
			whole.goesOn(later.clone())
		}
		all[at[id]] = whole
	}
	return all
}

// clone copies what goesOn changes: a Journal can be judged again.
func (p *process) clone() *process {
	c := *p
	c.leases, c.open, c.rest = nil, map[string]*lease{}, slices.Clone(p.rest)
	for _, l := range p.leases {
		same := *l
		same.of = &c
		c.leases = append(c.leases, &same)
		if p.open[l.id] == l {
			c.open[l.id] = &same
		}
	}
	return &c
}

// goesOn takes what another file has of the same process, from later on.
func (p *process) goesOn(later *process) {
	had := map[string]bool{}
	for _, l := range p.leases {
		had[l.id] = true
	}
	rest := slices.Concat(p.rest, later.rest)
	p.rest = nil
	for i := range rest {
		p.add(&rest[i])
	}
	for _, l := range later.leases {
		if had[l.id] {
			continue
		}
		l.of = p
		p.leases = append(p.leases, l)
		if later.open[l.id] == l {
			p.open[l.id] = l
		}
	}
	p.missed += later.missed
	if later.jump-later.drift > p.jump-p.drift {
		p.jump, p.drift = later.jump, later.drift
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/quorumlock/redlock/compare/internal/measure"
	"github.com/quorumlock/redlock/compare/internal/subject"
)

// A runner measures, and logs its progress.
type runner struct {
	each   time.Duration // of one measurement
	rounds int
	only   *regexp.Regexp // for "workload: subject"; nil: all
	log    io.Writer

	servers map[measure.Transport]*measure.Servers
	serial  int // number of the measurement, so that no two share a lock name
}

// at returns the servers for the transport. It starts them at the first call.
func (r *runner) at(ctx context.Context, t measure.Transport) (*measure.Servers, error) {
	if s := r.servers[t]; s != nil {
		return s, nil
	}
	s, err := measure.StartServers(ctx, t)
	if err != nil {
		return nil, err
	}
	if r.servers == nil {
		r.servers = map[measure.Transport]*measure.Servers{}
	}
	r.servers[t] = s
	return s, nil
}

// close ends all servers.
func (r *runner) close() error {
	var errs []error
	for _, s := range r.servers {
		errs = append(errs, s.Close())
	}
	r.servers = nil
	return errors.Join(errs...)
}

func (r *runner) setting(s *measure.Servers) measure.Setting {
	r.serial++
	return measure.Setting{Servers: s, Time: r.each, Prefix: fmt.Sprintf("c%04d", r.serial)}
}

// wanted returns the subjects of the workload.
func (r *runner) wanted(w workload) (subjects []subject.Subject) {
	for _, s := range subject.All() {
		if w.takes(s) && (r.only == nil || r.only.MatchString(w.name+": "+s.Name)) {
			subjects = append(subjects, s)
		}
	}
	return subjects
}

// run goes through the whole plan in each round, instead of measuring all rounds of a subject at once. So a machine
// that is slow for a while affects all subjects. Each round begins with another subject.
func (r *runner) run(ctx context.Context, plan []workload) (*report, error) {
	rep := newReport(r.rounds, r.each)
	for _, w := range plan {
		for _, s := range r.wanted(w) {
			rep.find(w, s.Name)
		}
	}
	for round := range r.rounds {
		for _, w := range plan {
			subjects := r.wanted(w)
			for i := range subjects {
				s := subjects[(i+round)%len(subjects)]
				if err := r.measure(ctx, round, w, s, rep); err != nil {
					return rep, err
				}
			}
		}
	}
	rep.conclude()
	return rep, nil
}

// measure takes one sample. The failure of a subject is part of the report. An error means that continuing makes no
// sense.
func (r *runner) measure(ctx context.Context, round int, w workload, s subject.Subject, rep *report) error {
	servers, err := r.at(ctx, w.transport)
	if err != nil {
		return err
	}
	if rep.Redis == "" {
		if rep.Redis, err = servers.Version(ctx); err != nil {
			return err
		}
	}
	set := r.setting(servers)
	var sample measure.Sample
	if w.handover {
		set.Time *= 2 // subjects that poll need a tenth of a second per hand-over
		sample, err = measure.RunHandover(ctx, set, s, w.load.Fault)
	} else {
		sample, err = w.load.Run(ctx, set, s)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	res := rep.find(w, s.Name)
	res.Samples = append(res.Samples, sample)
	outcome := ""
	if err != nil {
		res.Errors = append(res.Errors, err.Error())
		outcome = "FAILED: " + err.Error()
		if errors.Is(err, measure.ErrStuck) {
			return fmt.Errorf("%s: %s: %w", w.name, s.Name, err)
		}
	} else {
		outcome = show(w.main(), sample[w.main()]) + " " + title(w.main())
	}
	fmt.Fprintf(r.log, "round %d of %d  %-46s %-33s %s\n", round+1, r.rounds, w.name, s.Name, outcome)
	return nil
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/quorumlock/redlock/compare/internal/measure"
	"github.com/quorumlock/redlock/compare/internal/subject"
)

// The columns of the tables of --scale.
var (
	idleColumns  = []measure.Metric{measure.Goroutines, measure.ClientConns, measure.ClientBytes}
	scaleColumns = []measure.Metric{measure.LeasesTaken, measure.Acquiring, measure.SecondsKept, measure.Lost,
		measure.LeaseBytes, measure.Goroutines, measure.LeaseCPU, measure.TimeToUnlock, measure.Failures, measure.Leftovers}
)

// manySubjects renew leases by themselves, any number of them.
var manySubjects = []string{"redlock", "rueidislock (one server)"}

// scale measures one client with many leases, and idle clients.
func (r *runner) scale(ctx context.Context, leases int, ttl, keep time.Duration) (*report, error) {
	rep := newReport(1, keep)
	servers, err := r.at(ctx, measure.TCP)
	if err != nil {
		return nil, err
	}
	if rep.Redis, err = servers.Version(ctx); err != nil {
		return nil, err
	}
	idle := workload{name: "an idle client", columns: idleColumns}
	for _, s := range r.wanted(idle) {
		if s.Bare {
			continue
		}
		sample, err := measure.RunIdle(ctx, r.setting(servers), s)
		if !r.note(ctx, rep, idle, s, sample, err) {
			return nil, context.Cause(ctx)
		}
	}
	many := workload{name: fmt.Sprintf("leases of %v kept by one client", ttl), columns: scaleColumns, subjects: manySubjects}
	for _, s := range r.wanted(many) {
		set := r.setting(servers)
		set.Time = keep
		sample, err := measure.RunScale(ctx, set, s, leases, ttl, func(text string) { fmt.Fprintf(r.log, "%s: %s\n", s.Name, text) })
		if !r.note(ctx, rep, many, s, sample, err) {
			return nil, context.Cause(ctx)
		}
	}
	rep.conclude()
	return rep, nil
}

// note adds a sample to the report, unless ctx has ended.
func (r *runner) note(ctx context.Context, rep *report, w workload, s subject.Subject, sample measure.Sample, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	res := rep.find(w, s.Name)
	res.Samples = append(res.Samples, sample)
	if err != nil {
		res.Errors = append(res.Errors, err.Error())
	}
	fmt.Fprintf(r.log, "%s: %s: done\n", w.name, s.Name)
	return true
}

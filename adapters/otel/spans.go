package redlockotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/quorumlock/redlock"
)

// maxRenewalsInTrace is how many renewals of one lease join the trace of its Acquire.
const maxRenewalsInTrace = 100

var dbSystem = attribute.String("db.system.name", "redis")

// span makes the spans of an operation, with its times.
func (t *Telemetry) span(ctx context.Context, op redlock.Operation) {
	about := append(t.attributes(op.Lease.Names), attribute.Int("redlock.names", len(op.Lease.Names)))
	if op.Lease.Fence != 0 {
		about = append(about, attribute.Int64("redlock.fencing_token", int64(op.Lease.Fence))) // below 2^53
	}
	var options []trace.SpanStartOption
	var name string
	switch op.Op {
	case "acquire":
		name, about = "redlock.acquire", append(about, attribute.Int("redlock.attempts", len(op.Rounds)+op.RoundsLeftOut))
	case "extend":
		name, about = "redlock.renew", append(about, dbSystem, attribute.Int("redlock.renewal", op.Renewal))
		options = append(options, trace.WithSpanKind(trace.SpanKindClient))
		if op.Renewal > maxRenewalsInTrace {
			options = append(options, trace.WithNewRoot(), trace.WithLinks(trace.LinkFromContext(ctx)))
		}
	default:
		name, about = "redlock."+op.Op, append(about, dbSystem)
		options = append(options, trace.WithSpanKind(trace.SpanKindClient))
	}
	options = append(options, trace.WithTimestamp(op.Begun), trace.WithAttributes(about...))
	ctx, span := t.tracer.Start(ctx, name, options...)
	if span.IsRecording() {
		for i, a := range op.Rounds {
			if i == 1 && op.RoundsLeftOut > 0 {
				span.AddEvent("redlock.attempts_left_out", trace.WithTimestamp(a.Begun),
					trace.WithAttributes(attribute.Int("redlock.attempts", op.RoundsLeftOut)))
			}
			t.attempt(ctx, a)
		}
	}
	end(span, op.Err, op.Begun.Add(op.Took))
}

func (t *Telemetry) attempt(ctx context.Context, a redlock.Attempt) {
	_, span := t.tracer.Start(ctx, "redlock.attempt", trace.WithTimestamp(a.Begun),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(dbSystem, attribute.Int("redlock.nodes.granted", a.Granted),
			attribute.Int("redlock.nodes.denied", a.Denied), attribute.Int("redlock.nodes.unknown", a.Unknown)))
	end(span, a.Err, a.Begun.Add(a.Took))
}

func end(span trace.Span, err error, at time.Time) {
	outcome := outcomeOf(err)
	span.SetAttributes(attribute.String("redlock.outcome", outcome))
	if failed(outcome) {
		span.SetAttributes(attribute.String("error.type", outcome))
		span.SetStatus(codes.Error, valid(err.Error()))
	}
	span.End(trace.WithTimestamp(at))
}

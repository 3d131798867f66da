package main

import (
	"bytes"
	"context"
	"log"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
	"github.com/quorumlock/redlock/redlocktest"
)

const shown = `24 deliveries of 12 jobs: 12 had their effect, 12 came again later, 0 ran beside another of their customer
`

const nodeTimeout = 3 * time.Second // however busy the machine is

func TestEachJobHasItsEffectOnce(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, "", ""))
	require.Equal(t, shown, out.String())
}

// As with the flags of the command: on real Redis servers, one of them for the queue.
func TestEachJobHasItsEffectOnceOnRealServers(t *testing.T) {
	locks := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	queue := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(locks.URLs()...), NodeTimeout: nodeTimeout})
	require.NoError(t, err)
	require.NoError(t, client.Enroll(t.Context(), redlock.OnlyNew())) // as `redlock enroll` does
	require.NoError(t, client.Close())
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, strings.Join(locks.URLs(), ","), queue.URLs()[0]))
	require.Equal(t, shown, out.String())
}

// The figure 0 of the others can be another: two tasks of one customer meet if nothing keeps them apart.
func TestWithoutTheLockTwoJobsOfACustomerRunTogether(t *testing.T) {
	broker := newQueue(t)
	var both sync.WaitGroup // each waits inside until the other is inside too
	both.Add(2)
	books := newLedger(func() { both.Done(); both.Wait() })
	client := newClient(t, redlocktest.Start(t, 3))
	unlocked := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		lease, err := client.Mutex(string(task.Payload())).Acquire(ctx) // a lock of each invoice, not of the customer
		if err != nil {
			return err
		}
		return books.book(lease.With(ctx), task)
	})
	startWorker(t, broker, unlocked)
	enqueue(t, broker, "7/1")
	enqueue(t, broker, "7/2")
	<-books.all
	<-books.all
	require.Equal(t, 1, books.together)
}

func TestAJobWhoseLockIsHeldIsPutOffAndHasNotFailed(t *testing.T) {
	broker := newQueue(t)
	locks := redlocktest.Start(t, 3)
	held, err := newClient(t, locks).Mutex("customer/7").Acquire(t.Context())
	require.NoError(t, err)
	books := newLedger(func() {})
	startWorker(t, broker, newHandler(newClient(t, locks), books, 20*time.Millisecond))
	info := enqueue(t, broker, "7/1")
	inspector := asynq.NewInspector(broker)
	t.Cleanup(func() { require.NoError(t, inspector.Close()) })
	require.Eventually(t, func() bool {
		now, err := inspector.GetTaskInfo(info.Queue, info.ID)
		require.NoError(t, err)
		return now.State == asynq.TaskStateRetry && strings.Contains(now.LastErr, "held") && now.Retried == 0
	}, time.Minute, 5*time.Millisecond)
	require.Empty(t, books.all)

	require.NoError(t, held.Release(t.Context()))
	<-books.all
	require.Equal(t, map[string]bool{"7/1": true}, books.booked)
}

// However short patience is, a task that did not run has not failed.
func TestATaskThatCouldNotWaitHasNotFailed(t *testing.T) {
	client := newClient(t, redlocktest.Start(t, 3))
	work := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { panic("the task runs") })
	handler := oneAtATime(client, func(*asynq.Task) string { return "x" }, time.Nanosecond)(work)
	require.False(t, config(quiet{}).IsFailure(handler.ProcessTask(t.Context(), asynq.NewTask(taskType, nil))))
	ended, end := context.WithCancel(t.Context())
	end()
	require.True(t, config(quiet{}).IsFailure(handler.ProcessTask(ended, asynq.NewTask(taskType, nil))), "by the queue")
}

// A deadline of the queue, or the end of the worker. The lock is released, and there is nothing to log.
func TestATaskThatTheQueueEndsLeavesNoLockAndNoLineInTheLog(t *testing.T) {
	client := newClient(t, redlocktest.Start(t, 3))
	var logged bytes.Buffer
	log.SetOutput(&logged)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	ctx, end := context.WithCancel(t.Context())
	handler := oneAtATime(client, func(*asynq.Task) string { return "x" }, time.Minute)(asynq.HandlerFunc(
		func(ctx context.Context, _ *asynq.Task) error {
			end()
			<-ctx.Done()
			return ctx.Err()
		}))
	require.ErrorIs(t, handler.ProcessTask(ctx, asynq.NewTask(taskType, nil)), context.Canceled)
	lease, err := client.Mutex("x").Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
	require.Empty(t, logged.String())
}

func newQueue(t *testing.T) asynq.RedisConnOpt {
	broker, end, err := openQueue("")
	require.NoError(t, err)
	t.Cleanup(end)
	return broker
}

func newClient(t *testing.T, on *redlocktest.Nodes) *redlock.Client {
	client, err := redlock.New(redlock.Config{Nodes: on.Nodes(), NodeTimeout: nodeTimeout})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func startWorker(t *testing.T, broker asynq.RedisConnOpt, handler asynq.Handler) {
	worker := asynq.NewServer(broker, config(quiet{}))
	require.NoError(t, worker.Start(handler))
	t.Cleanup(worker.Shutdown)
}

func enqueue(t *testing.T, broker asynq.RedisConnOpt, payload string) *asynq.TaskInfo {
	producer := asynq.NewClient(broker)
	defer producer.Close()
	info, err := producer.EnqueueContext(t.Context(), asynq.NewTask(taskType, []byte(payload)))
	require.NoError(t, err)
	return info
}

package subject

import (
	rsredis "github.com/go-redsync/redsync/v4/redis"
	rsrueidis "github.com/go-redsync/redsync/v4/redis/rueidis"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"
)

// openRueidis makes no pool: rueidis pipelines the commands of all callers over a few connections. It needs no timeouts of
// its own, because it ends each command with its context.
func openRueidis(server string, _ Options) (rsredis.Pool, func() error, error) {
	option, err := rueidis.ParseURL(server)
	if err != nil {
		return nil, nil, err
	}
	client, err := rueidis.NewClient(option)
	if err != nil {
		return nil, nil, err
	}
	return rsrueidis.NewPool(rueidiscompat.NewAdapter(client)), func() error { client.Close(); return nil }, nil
}

package subject

import (
	rsredis "github.com/go-redsync/redsync/v4/redis"
	rsrueidis "github.com/go-redsync/redsync/v4/redis/rueidis"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"
)

// openRueidis makes no pool: rueidis pipelines the commands of all callers over a few connections.
func openRueidis(server string, o Options) (rsredis.Pool, func() error, error) {
	option, err := rueidisOption(server, o)
	if err != nil {
		return nil, nil, err
	}
	client, err := rueidis.NewClient(option)
	if err != nil {
		return nil, nil, err
	}
	return rsrueidis.NewPool(rueidiscompat.NewAdapter(client)), func() error { client.Close(); return nil }, nil
}

func rueidisOption(server string, o Options) (rueidis.ClientOption, error) {
	option, err := rueidis.ParseURL(server)
	if o.Patience > 0 {
		option.Dialer.Timeout, option.ConnWriteTimeout = o.Patience, o.Patience
	}
	return option, err
}

package mongo_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.uber.org/goleak"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/adapters/livestores/internal/loadtest"
	"github.com/isotone/isotone/adapters/livestores/mongo"
	"github.com/isotone/isotone/internal/live"
	"github.com/isotone/isotone/internal/live/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, url string) store.Loader { return loadtest.Open(t, mongo.Open, url) }

func TestMongo_DocumentsOfAServer(t *testing.T) {
	f := startFerret(t)
	url := "mongodb://" + f.addr + "/shop#live/"
	oid, err := bson.ObjectIDFromHex("65f0c0ffee65f0c0ffee65f0")
	if err != nil {
		t.Fatal(err)
	}
	day := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	put := func(documents ...any) {
		f.with(func(ctx context.Context, c *driver.Collection) error {
			_, err := c.InsertMany(ctx, documents)
			return err
		})
	}
	t.Run("appears, changes, vanishes", func(t *testing.T) {
		l := open(t, url+"votes")
		loadtest.Wants(t, l, "", isotone.ErrNotFound)
		put(bson.D{{Key: "_id", Value: "votes"}, {Key: "yes", Value: 1}})
		loadtest.Wants(t, l, `{"_id":"votes","yes":1}`, nil)
		loadtest.Wants(t, l, "", nil)
		f.with(func(ctx context.Context, c *driver.Collection) error {
			_, err := c.ReplaceOne(ctx, bson.D{{Key: "_id", Value: "votes"}}, bson.D{{Key: "yes", Value: 2}})
			return err
		})
		loadtest.Wants(t, l, `{"_id":"votes","yes":2}`, nil)
		f.with(func(ctx context.Context, c *driver.Collection) error {
			_, err := c.DeleteOne(ctx, bson.D{{Key: "_id", Value: "votes"}})
			return err
		})
		loadtest.Wants(t, l, "", isotone.ErrNotFound)
	})
	put(
		bson.D{{Key: "_id", Value: oid}, {Key: "at", Value: day}, {Key: "n", Value: int64(1) << 60}, {Key: "x", Value: 1.5}, {Key: "text", Value: "<ä>"}},
		bson.D{{Key: "_id", Value: int32(42)}},
		bson.D{{Key: "_id", Value: "42"}},
		bson.D{{Key: "_id", Value: "large"}, {Key: "x", Value: strings.Repeat("x", loadtest.SizeMax)}},
		// Short as BSON, long as JSON.
		bson.D{{Key: "_id", Value: "long"}, {Key: "x", Value: strings.Repeat("\x01", 900)}},
		// Long as BSON, which names each element, short as JSON.
		bson.D{{Key: "_id", Value: "list"}, {Key: "x", Value: make([]int32, loadtest.SizeMax/4)}},
	)
	loadtest.Wants(t, open(t, url+oid.Hex()), `{"_id":{"$oid":"65f0c0ffee65f0c0ffee65f0"},"at":{"$date":"2026-01-02T03:04:05Z"},"n":1152921504606846976,"x":1.5,"text":"<ä>"}`, nil)
	loadtest.Wants(t, open(t, url+"42"), `{"_id":42}`, nil)
	loadtest.Wants(t, open(t, url+"large"), "", isotone.ErrInvalidArgument)
	loadtest.Wants(t, open(t, url+"long"), "", isotone.ErrInvalidArgument)
	loadtest.Wants(t, open(t, url+"list"), `{"_id":"list","x":[0`+strings.Repeat(",0", loadtest.SizeMax/4-1)+"]}", nil)
	loadtest.Wants(t, open(t, strings.Replace(url, "#live", "#none", 1)+"x"), "", isotone.ErrNotFound)
	t.Run("killed and back", func(t *testing.T) {
		l := open(t, url+"42")
		loadtest.Wants(t, l, `{"_id":42}`, nil)
		f.kill()
		if _, _, err := loadtest.Load(t, l, time.Second); !errors.Is(err, isotone.ErrInternal) {
			t.Errorf("of a server that is down: %v", err)
		}
		f.start()
		loadtest.Wants(t, l, "", nil)
	})
}

func TestMongo_FailuresHaveTheirCodes(t *testing.T) {
	for name, c := range map[string]struct {
		user   string
		answer bson.D
		want   error
	}{
		"wrong password":     {"app:hidden@", bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: 18}, {Key: "errmsg", Value: "Authentication failed."}}, isotone.ErrUnauthorized},
		"without a password": {"", bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: 13}, {Key: "errmsg", Value: "requires authentication"}}, isotone.ErrUnauthorized},
		"too slow for it":    {"", bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: 50}, {Key: "errmsg", Value: "exceeded time limit"}}, isotone.ErrDeadlineExceeded},
		"invalid":            {"", bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: 73}, {Key: "errmsg", Value: "Invalid namespace"}}, isotone.ErrInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFake(t, nil, func(bson.Raw) bson.D { return c.answer })
			_, _, err := loadtest.Load(t, open(t, "mongodb://"+c.user+f.addr+"/shop#live/votes"), time.Minute)
			if !errors.Is(err, c.want) || strings.Contains(err.Error(), "hidden") {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

func TestMongo_SlowServerCostsATimeout(t *testing.T) {
	f := startFake(t, nil, func(bson.Raw) bson.D { return nil })
	if _, _, err := loadtest.Load(t, open(t, "mongodb://"+f.addr+"/shop#live/votes"), time.Second); !errors.Is(err, isotone.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

// TestMongo_MembersThatOnlyAServerNamesAreRefused has a member of a replica set that names another server.
func TestMongo_MembersThatOnlyAServerNamesAreRefused(t *testing.T) {
	other := startFake(t, nil, func(bson.Raw) bson.D { return nil })
	_, port, _ := net.SplitHostPort(other.addr)
	for _, named := range []string{"localhost:" + port, "169.254.169.254:80"} {
		first := startFake(t, bson.D{
			{Key: "setName", Value: "rs0"}, {Key: "setVersion", Value: 1}, {Key: "hosts", Value: bson.A{named}}, {Key: "me", Value: named},
		}, func(bson.Raw) bson.D { return nil })
		_, _, err := loadtest.Load(t, open(t, "mongodb://"+first.addr+"/shop?replicaSet=rs0#live/votes"), 2*time.Second)
		var refused *live.RefusedError
		if !errors.As(err, &refused) || !errors.Is(err, isotone.ErrForbidden) || !strings.Contains(err.Error(), "put all members into LIVE") {
			t.Errorf("%s: %v", named, err)
		}
	}
	if other.dials.Load() != 0 {
		t.Error("the other server was reached")
	}
}

func TestMongo_NamesThatLeadToLocalAddressesAreRefused(t *testing.T) {
	loadtest.FakeResolver(t)
	for _, url := range []string{
		"mongodb://app:hidden@db.example/shop#live/votes",
		"mongodb+srv://app:hidden@cluster.example.net/shop?tls=false#live/votes",
	} {
		_, _, err := loadtest.Load(t, open(t, url), 2*time.Second)
		var refused *live.RefusedError
		if !errors.As(err, &refused) || !errors.Is(err, isotone.ErrForbidden) || !strings.Contains(err.Error(), "leads to 169.254.169.254:27017") ||
			strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", url, err)
		}
	}
	// The records of this name lead out of its domain.
	_, _, err := loadtest.Load(t, open(t, "mongodb+srv://app:hidden@cluster.other.net/shop#live/votes"), time.Minute)
	if !errors.Is(err, isotone.ErrInvalidArgument) || strings.Contains(err.Error(), "hidden") {
		t.Errorf("SRV records of another domain: %v", err)
	}
}

func TestMongo_OptionsThatTheDriverDoesNotTake(t *testing.T) {
	_, _, err := loadtest.Load(t, open(t, "mongodb://app:hidden@127.0.0.1:1/shop?authMechanism=NONE#live/votes"), time.Minute)
	if !errors.Is(err, isotone.ErrInvalidArgument) || strings.Contains(err.Error(), "hidden") {
		t.Error(err)
	}
}

from tests.small_runs import *
import time, json
def test_own(spark, tmp_path):
    write_input(tmp_path, draw_world(5000))
    c = make_config(tmp_path)
    for st in c.stages:
        t=time.time(); run_stage(spark,c,st); print(st, round(time.time()-t,1))
    print({m:{k:v[k] for k in ("field_rce","field_rce_noise_floor","log_loss")} for m,v in json.loads((c.run_dir/"metrics.json").read_text())["methods"].items()})
def test_pred(spark, tmp_path):
    write_input(tmp_path, draw_world(5000))
    c = predictor_config(tmp_path)
    for st in c.stages:
        t=time.time(); run_stage(spark,c,st); print(st, round(time.time()-t,1))
    print({m:{k:v[k] for k in ("field_rce","field_rce_noise_floor","log_loss")} for m,v in json.loads((c.run_dir/"metrics.json").read_text())["methods"].items()})
def test_pred2(spark, tmp_path):
    write_input(tmp_path, draw_world(5000))
    c = predictor_config(tmp_path, {"calibrator":{"mode":"paper"}})
    for st in c.stages:
        t=time.time(); run_stage(spark,c,st,in_process=False); print(st, round(time.time()-t,1))
    print({m:{k:v[k] for k in ("field_rce","field_rce_noise_floor","log_loss")} for m,v in json.loads((c.run_dir/"metrics.json").read_text())["methods"].items()})

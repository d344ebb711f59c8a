-- study.sqlite of schema version 1, as iterdump() wrote it; seconds made round.
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE configs (
    config_id INTEGER PRIMARY KEY, config_hash TEXT NOT NULL UNIQUE, origin TEXT NOT NULL, config TEXT NOT NULL
);
INSERT INTO "configs" VALUES(1,'1685a14c33c7a1ff6564ed26bcde6c830192f409146ca5d86041a72b0412314f','default','{"kind":"a","rate":0.01,"x":0.5}');
INSERT INTO "configs" VALUES(2,'417aa6dfa5c4ec795f42578a28fd0aab40d6b29f3847c52145f71dbd777f9a24','random','{"kind":"a","rate":0.2942813501,"x":0.665665386585}');
CREATE TABLE evals (
    run_id INTEGER NOT NULL, step INTEGER NOT NULL, metric TEXT NOT NULL, value REAL,
    PRIMARY KEY (run_id, step, metric)
) WITHOUT ROWID;
INSERT INTO "evals" VALUES(0,50,'eval_length',1.0);
INSERT INTO "evals" VALUES(0,50,'eval_return',8.99889740726593778674e-01);
INSERT INTO "evals" VALUES(0,50,'eval_return_std',0.1);
INSERT INTO "evals" VALUES(0,100,'eval_length',1.0);
INSERT INTO "evals" VALUES(0,100,'eval_return',1.07537397333567219526e+00);
INSERT INTO "evals" VALUES(0,100,'eval_return_std',0.1);
INSERT INTO "evals" VALUES(1,50,'eval_length',1.0);
INSERT INTO "evals" VALUES(1,50,'eval_return',0.818710594297454);
INSERT INTO "evals" VALUES(1,50,'eval_return_std',0.1);
INSERT INTO "evals" VALUES(1,100,'eval_length',1.0);
INSERT INTO "evals" VALUES(1,100,'eval_return',9.94194826906532158616e-01);
INSERT INTO "evals" VALUES(1,100,'eval_return_std',0.1);
INSERT INTO "evals" VALUES(5000,50,'eval_length',1.0);
INSERT INTO "evals" VALUES(5000,50,'eval_return',6.572057373625033172e-01);
INSERT INTO "evals" VALUES(5000,50,'eval_return_std',0.1);
INSERT INTO "evals" VALUES(5000,100,'eval_length',1.0);
INSERT INTO "evals" VALUES(5000,100,'eval_return',8.32689969971581622765e-01);
INSERT INTO "evals" VALUES(5000,100,'eval_return_std',0.1);
INSERT INTO "evals" VALUES(10000,50,'eval_length',1.0);
INSERT INTO "evals" VALUES(10000,50,'eval_return',8.49420872636327262128e-01);
INSERT INTO "evals" VALUES(10000,50,'eval_return_std',0.1);
INSERT INTO "evals" VALUES(10000,100,'eval_length',1.0);
INSERT INTO "evals" VALUES(10000,100,'eval_return',1.03092808106756694819e+00);
INSERT INTO "evals" VALUES(10000,100,'eval_return_std',0.1);
INSERT INTO "evals" VALUES(10001,50,'eval_length',1.0);
INSERT INTO "evals" VALUES(10001,50,'eval_return',7.35742665757437297457e-01);
INSERT INTO "evals" VALUES(10001,50,'eval_return_std',0.1);
INSERT INTO "evals" VALUES(10001,100,'eval_length',1.0);
INSERT INTO "evals" VALUES(10001,100,'eval_return',9.17249874188676761477e-01);
INSERT INTO "evals" VALUES(10001,100,'eval_return_std',0.1);
INSERT INTO "evals" VALUES(15000,50,'eval_length',1.0);
INSERT INTO "evals" VALUES(15000,50,'eval_return',6.75658157164836570274e-01);
INSERT INTO "evals" VALUES(15000,50,'eval_return_std',0.1);
INSERT INTO "evals" VALUES(15000,100,'eval_length',1.0);
INSERT INTO "evals" VALUES(15000,100,'eval_return',0.857165365596076);
INSERT INTO "evals" VALUES(15000,100,'eval_return_std',0.1);
CREATE TABLE event (
    seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL, time REAL NOT NULL
);
INSERT INTO "event" VALUES(1,'session','{"pid":1,"platform":"linux","python":"3.11.0","version":"0.1.0"}',1700000000.0);
INSERT INTO "event" VALUES(2,'proposed','{"config":{"kind":"a","rate":0.01,"x":0.5},"config_hash":"1685a14c33c7a1ff6564ed26bcde6c830192f409146ca5d86041a72b0412314f","id":0,"member":null,"meta":{},"origin":"default","resume_from":null,"until":100}',1700000000.0);
INSERT INTO "event" VALUES(3,'proposed','{"config":{"kind":"a","rate":0.2942813501,"x":0.665665386585},"config_hash":"417aa6dfa5c4ec795f42578a28fd0aab40d6b29f3847c52145f71dbd777f9a24","id":1,"member":null,"meta":{},"origin":"random","resume_from":null,"until":100}',1700000000.0);
INSERT INTO "event" VALUES(4,'outcome','{"applied":{"kind":"a","rate":0.01,"x":0.5},"checkpoint":null,"cost":{"environment_steps":100,"wall_seconds":0.5},"message":"","notes":[],"reached":100,"reductions":[["eval_return",100,1.0753739733356722,1.0753739733356722,100,0.987631857031133,0.987631857031133]],"reports":[[50,{"eval_length":1.0,"eval_return":0.8998897407265938,"eval_return_std":0.1}],[100,{"eval_length":1.0,"eval_return":1.0753739733356722,"eval_return_std":0.1}]],"run":{"algorithm":"synthetic","environment":null,"from_step":0,"member":null,"parent":null,"parent_run":null,"proposal":0,"role":"tuning","run_id":0,"seed":0,"start_step":0},"segment":"0.0","status":"done"}',1700000000.0);
INSERT INTO "event" VALUES(5,'outcome','{"applied":{"kind":"a","rate":0.01,"x":0.5},"checkpoint":null,"cost":{"environment_steps":100,"wall_seconds":0.5},"message":"","notes":[],"reached":100,"reductions":[["eval_return",100,0.9941948269065322,0.9941948269065322,100,0.9064527106019931,0.9064527106019931]],"reports":[[50,{"eval_length":1.0,"eval_return":0.818710594297454,"eval_return_std":0.1}],[100,{"eval_length":1.0,"eval_return":0.9941948269065322,"eval_return_std":0.1}]],"run":{"algorithm":"synthetic","environment":null,"from_step":0,"member":null,"parent":null,"parent_run":null,"proposal":0,"role":"tuning","run_id":1,"seed":1,"start_step":0},"segment":"0.1","status":"done"}',1700000000.0);
INSERT INTO "event" VALUES(6,'scored','{"constraints":[],"mean":[1.0347844001211022],"n_seeds":2,"proposal":0,"reached":100,"resumable":true,"score":[1.0347844001211022],"seeds":[0,1],"spread":[0.057402324930980624],"values":[1.0347844001211022]}',1700000000.0);
INSERT INTO "event" VALUES(7,'outcome','{"applied":{"kind":"a","rate":0.2942813501,"x":0.665665386585},"checkpoint":null,"cost":{"environment_steps":100,"wall_seconds":0.5},"message":"","notes":[],"reached":100,"reductions":[["eval_return",100,1.030928081067567,1.030928081067567,100,0.9401744768519471,0.9401744768519471]],"reports":[[50,{"eval_length":1.0,"eval_return":0.8494208726363273,"eval_return_std":0.1}],[100,{"eval_length":1.0,"eval_return":1.030928081067567,"eval_return_std":0.1}]],"run":{"algorithm":"synthetic","environment":null,"from_step":0,"member":null,"parent":null,"parent_run":null,"proposal":1,"role":"tuning","run_id":10000,"seed":0,"start_step":0},"segment":"1.0","status":"done"}',1700000000.0);
INSERT INTO "event" VALUES(8,'outcome','{"applied":{"kind":"a","rate":0.2942813501,"x":0.665665386585},"checkpoint":null,"cost":{"environment_steps":100,"wall_seconds":0.5},"message":"","notes":[],"reached":100,"reductions":[["eval_return",100,0.9172498741886768,0.9172498741886768,100,0.826496269973057,0.826496269973057]],"reports":[[50,{"eval_length":1.0,"eval_return":0.7357426657574373,"eval_return_std":0.1}],[100,{"eval_length":1.0,"eval_return":0.9172498741886768,"eval_return_std":0.1}]],"run":{"algorithm":"synthetic","environment":null,"from_step":0,"member":null,"parent":null,"parent_run":null,"proposal":1,"role":"tuning","run_id":10001,"seed":1,"start_step":0},"segment":"1.1","status":"done"}',1700000000.0);
INSERT INTO "event" VALUES(9,'scored','{"constraints":[],"mean":[0.9740889776281219],"n_seeds":2,"proposal":1,"reached":100,"resumable":true,"score":[0.9740889776281219],"seeds":[0,1],"spread":[0.08038263095719049],"values":[0.9740889776281219]}',1700000000.0);
INSERT INTO "event" VALUES(10,'frozen','{"candidates":[["incumbent",0,null],["rank 2",1,null]],"seeds":[100]}',1700000000.0);
INSERT INTO "event" VALUES(11,'outcome','{"applied":{"kind":"a","rate":0.01,"x":0.5},"checkpoint":"checkpoints/0.100","cost":{"environment_steps":100,"wall_seconds":0.5},"message":"","notes":[],"reached":100,"reductions":[["eval_return",100,0.8326899699715816,0.8326899699715816,100,0.7449478536670424,0.7449478536670424]],"reports":[[50,{"eval_length":1.0,"eval_return":0.6572057373625033,"eval_return_std":0.1}],[100,{"eval_length":1.0,"eval_return":0.8326899699715816,"eval_return_std":0.1}]],"run":{"algorithm":"synthetic","environment":null,"from_step":0,"member":null,"parent":null,"parent_run":null,"proposal":0,"role":"test","run_id":5000,"seed":100,"start_step":0},"segment":"0.100","status":"done"}',1700000000.0);
INSERT INTO "event" VALUES(12,'tested','{"label":"incumbent","proposal":0,"rows":[[0,100,0.8326899699715816,"done"]]}',1700000000.0);
INSERT INTO "event" VALUES(13,'outcome','{"applied":{"kind":"a","rate":0.2942813501,"x":0.665665386585},"checkpoint":"checkpoints/1.100","cost":{"environment_steps":100,"wall_seconds":0.5},"message":"","notes":[],"reached":100,"reductions":[["eval_return",100,0.857165365596076,0.857165365596076,100,0.7664117613804563,0.7664117613804563]],"reports":[[50,{"eval_length":1.0,"eval_return":0.6756581571648366,"eval_return_std":0.1}],[100,{"eval_length":1.0,"eval_return":0.857165365596076,"eval_return_std":0.1}]],"run":{"algorithm":"synthetic","environment":null,"from_step":0,"member":null,"parent":null,"parent_run":null,"proposal":1,"role":"test","run_id":15000,"seed":100,"start_step":0},"segment":"1.100","status":"done"}',1700000000.0);
INSERT INTO "event" VALUES(14,'tested','{"label":"rank 2","proposal":1,"rows":[[0,100,0.857165365596076,"done"]]}',1700000000.0);
INSERT INTO "event" VALUES(15,'finished','{}',1700000000.0);
CREATE TABLE proposals (
    proposal INTEGER PRIMARY KEY, config_id INTEGER NOT NULL, until INTEGER NOT NULL, resume_from INTEGER, member TEXT,
    origin TEXT NOT NULL, meta TEXT NOT NULL, status TEXT NOT NULL DEFAULT 'pending', score TEXT, spread TEXT,
    n_seeds INTEGER, reached INTEGER, constraints TEXT, resumable INTEGER, message TEXT NOT NULL DEFAULT ''
);
INSERT INTO "proposals" VALUES(0,1,100,NULL,NULL,'default','{}','scored','[1.0347844001211022]','[0.057402324930980624]',2,100,'[]',1,'');
INSERT INTO "proposals" VALUES(1,2,100,NULL,NULL,'random','{}','scored','[0.9740889776281219]','[0.08038263095719049]',2,100,'[]',1,'');
CREATE TABLE runs (
    run_id INTEGER PRIMARY KEY, config_id INTEGER NOT NULL, seed INTEGER NOT NULL, seed_role TEXT NOT NULL,
    algorithm TEXT NOT NULL, environment TEXT, parent_run INTEGER, start_step INTEGER NOT NULL, member TEXT,
    status TEXT NOT NULL, environment_steps REAL NOT NULL, wall_seconds REAL NOT NULL
);
INSERT INTO "runs" VALUES(0,1,0,'tuning','synthetic',NULL,NULL,0,NULL,'done',100.0,5.08503000673954375088e-04);
INSERT INTO "runs" VALUES(1,1,1,'tuning','synthetic',NULL,NULL,0,NULL,'done',100.0,3.73793999642657581716e-04);
INSERT INTO "runs" VALUES(5000,1,100,'test','synthetic',NULL,NULL,0,NULL,'done',100.0,3.52582000232359860092e-04);
INSERT INTO "runs" VALUES(10000,2,0,'tuning','synthetic',NULL,NULL,0,NULL,'done',100.0,3.60693999937211629003e-04);
INSERT INTO "runs" VALUES(10001,2,1,'tuning','synthetic',NULL,NULL,0,NULL,'done',100.0,3.48366000253008678555e-04);
INSERT INTO "runs" VALUES(15000,2,100,'test','synthetic',NULL,NULL,0,NULL,'done',100.0,3.55447000401909463107e-04);
CREATE TABLE scores (
    run_id INTEGER NOT NULL, metric TEXT NOT NULL, until INTEGER NOT NULL, last REAL, best REAL, best_step INTEGER,
    mean_last REAL, auc REAL, PRIMARY KEY (run_id, metric, until)
) WITHOUT ROWID;
INSERT INTO "scores" VALUES(0,'eval_return',100,1.07537397333567219526e+00,1.07537397333567219526e+00,100,0.987631857031133,0.987631857031133);
INSERT INTO "scores" VALUES(1,'eval_return',100,9.94194826906532158616e-01,9.94194826906532158616e-01,100,9.06452710601993061345e-01,9.06452710601993061345e-01);
INSERT INTO "scores" VALUES(5000,'eval_return',100,8.32689969971581622765e-01,8.32689969971581622765e-01,100,7.44947853667042414471e-01,7.44947853667042414471e-01);
INSERT INTO "scores" VALUES(10000,'eval_return',100,1.03092808106756694819e+00,1.03092808106756694819e+00,100,9.4017447685194710516e-01,9.4017447685194710516e-01);
INSERT INTO "scores" VALUES(10001,'eval_return',100,9.17249874188676761477e-01,9.17249874188676761477e-01,100,0.826496269973057,0.826496269973057);
INSERT INTO "scores" VALUES(15000,'eval_return',100,0.857165365596076,0.857165365596076,100,7.66411761380456302283e-01,7.66411761380456302283e-01);
CREATE TABLE segments (
    segment TEXT PRIMARY KEY, proposal INTEGER NOT NULL, run_id INTEGER NOT NULL, seed INTEGER NOT NULL, parent TEXT,
    member TEXT, from_step INTEGER NOT NULL, to_step INTEGER NOT NULL, config_id INTEGER NOT NULL, status TEXT NOT NULL,
    applied TEXT NOT NULL, notes TEXT NOT NULL, message TEXT NOT NULL, checkpoint TEXT
);
INSERT INTO "segments" VALUES('0.0',0,0,0,NULL,NULL,0,100,1,'done','{"kind":"a","rate":0.01,"x":0.5}','','',NULL);
INSERT INTO "segments" VALUES('0.1',0,1,1,NULL,NULL,0,100,1,'done','{"kind":"a","rate":0.01,"x":0.5}','','',NULL);
INSERT INTO "segments" VALUES('1.0',1,10000,0,NULL,NULL,0,100,2,'done','{"kind":"a","rate":0.2942813501,"x":0.665665386585}','','',NULL);
INSERT INTO "segments" VALUES('1.1',1,10001,1,NULL,NULL,0,100,2,'done','{"kind":"a","rate":0.2942813501,"x":0.665665386585}','','',NULL);
INSERT INTO "segments" VALUES('0.100',0,5000,100,NULL,NULL,0,100,1,'done','{"kind":"a","rate":0.01,"x":0.5}','','','checkpoints/0.100');
INSERT INTO "segments" VALUES('1.100',1,15000,100,NULL,NULL,0,100,2,'done','{"kind":"a","rate":0.2942813501,"x":0.665665386585}','','','checkpoints/1.100');
CREATE TABLE tests (
    proposal INTEGER NOT NULL, label TEXT NOT NULL, objective INTEGER NOT NULL, seed INTEGER NOT NULL, value REAL,
    status TEXT NOT NULL, PRIMARY KEY (proposal, objective, seed)
) WITHOUT ROWID;
INSERT INTO "tests" VALUES(0,'incumbent',0,100,8.32689969971581622765e-01,'done');
INSERT INTO "tests" VALUES(1,'rank 2',0,100,0.857165365596076,'done');
COMMIT;
